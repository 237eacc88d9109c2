<?php
/* What programs do with phpredis.   php php_client.php use|restart PORT [PASSWORD CERTIFICATE] */
declare(strict_types=1);
error_reporting(E_ALL);
set_error_handler(function (int $level, string $text, string $file, int $line): bool {
    throw new ErrorException($text, 0, $level, $file, $line);
});

$what = $argv[1];
$port = (int)$argv[2];
$password = $argv[3] ?? null;
$certificate = $argv[4] ?? null;

function expect(string $what, $found, $wanted): void
{
    if ($found !== $wanted) {
        $instead = json_encode($found) . ' instead of ' . json_encode($wanted);
        throw new Exception("$what: $instead");
    }
}

function connect(float $patience = 30): Redis
{
    global $port, $password, $certificate;
    $redis = new Redis();
    $context = $certificate ? ['stream' => ['cafile' => $certificate]] : [];
    $host = $certificate ? 'tls://127.0.0.1' : '127.0.0.1';
    $redis->connect($host, $port, 20, null, 0, $patience, $context);
    if ($password) {
        expect('auth', $redis->auth($password), true);
    }
    return $redis;
}

function strings(Redis $redis): void
{
    expect('ping', $redis->ping('hello'), 'hello');
    expect('set', $redis->set('key', 'value', ['nx', 'ex' => 100]), true);
    expect('nx', $redis->set('key', 'other', ['nx']), false);
    expect('ttl', $redis->ttl('key') > 90, true);
    expect('get', $redis->get('key'), 'value');
    expect('missing', $redis->get('nothing'), false);
    expect('setex', $redis->setex('soon', 100, 'x'), true);
    expect('psetex', $redis->psetex('sooner', 20, 'x'), true);
    expect('mset', $redis->mset(['a' => '1', 'b' => '2']), true);
    expect('mget', $redis->mget(['a', 'nothing', 'b']), ['1', false, '2']);
    expect('append', $redis->append('key', '!'), 6);
    expect('getRange', $redis->getRange('key', 0, 2), 'val');
    expect('strlen', $redis->strlen('key'), 6);
    expect('getSet', $redis->getSet('key', 'new'), 'value!');
    expect('incr', [$redis->incr('n'), $redis->incrBy('n', 10), $redis->decr('n')], [1, 11, 10]);
    expect('incrByFloat', $redis->incrByFloat('n', 0.5), 10.5);
    expect('exists', $redis->exists('a', 'b', 'nothing'), 2);
    expect('type', $redis->type('a'), Redis::REDIS_STRING);
    expect('rename', $redis->rename('a', 'aa'), true);
    expect('del', $redis->del('aa', 'b', 'nothing'), 2);
    expect('unlink', $redis->unlink('key'), 1);
    expect('binary', $redis->set("\0\xff\r\n", "\0\xff"), true);
    expect('binary', $redis->get("\0\xff\r\n"), "\0\xff");
    $end = microtime(true) + 20;
    while ($redis->exists('sooner') && microtime(true) < $end) {
        usleep(10000);
    }
    expect('expired', $redis->get('sooner'), false);
    expect('info', $redis->info('server')['redis_mode'], 'standalone');
    expect('select', [$redis->select(3), $redis->dbSize(), $redis->select(0)], [true, 0, true]);
    expect('error', [$redis->set('text', 'x'), $redis->incr('text')], [true, false]);
    expect('error', str_contains($redis->getLastError(), 'not an integer'), true);
    $redis->clearLastError();
}

function pipelines(Redis $redis): void
{
    $pipe = $redis->multi(Redis::PIPELINE);
    for ($i = 0; $i < 2000; $i++) {
        $pipe->set("scan:$i", (string)$i);
    }
    expect('pipeline', $pipe->exec(), array_fill(0, 2000, true));
    expect('pipeline', $redis->pipeline()->incr('p')->get('p')->del('p')->exec(), [1, '1', 1]);
    /* There are no transactions: nothing is written. After EXECABORT phpredis waits for more, as
     * it does with Redis itself, until its patience is over. */
    $redis->set('there', 'before');
    $refused = false;
    try {
        connect(0.2)->multi()->set('there', 'after')->set('fresh', '1')->exec();
    } catch (RedisException $error) {
        $refused = true;
    }
    expect('multi', $refused, true);
    expect('nothing written', $redis->mget(['there', 'fresh']), ['before', false]);
    $redis->setOption(Redis::OPT_SCAN, Redis::SCAN_RETRY);
    $cursor = null;
    $seen = [];
    while ($keys = $redis->scan($cursor, 'scan:*', 100)) {
        array_push($seen, ...$keys);
    }
    expect('scan', [count($seen), count(array_unique($seen))], [2000, 2000]);
    expect('keys', count($redis->keys('scan:199?')), 10);
}

function cache(Redis $redis): void
{
    $redis->setOption(Redis::OPT_PREFIX, 'cache:');
    $redis->setOption(Redis::OPT_SERIALIZER, Redis::SERIALIZER_PHP);
    $page = ['title' => 'café', 'rows' => range(1, 100), 'none' => null];
    expect('set', $redis->setex('page', 100, $page), true);
    expect('get', $redis->get('page'), $page);
    expect('mget', $redis->mget(['page', 'nothing']), [$page, false]);
    $redis->setOption(Redis::OPT_SERIALIZER, Redis::SERIALIZER_NONE);
    expect('prefix', $redis->rawCommand('exists', 'cache:page'), 1);
    $redis->setOption(Redis::OPT_PREFIX, '');
}

/* As php.ini would have it, with php's own handler for sessions. */
function session(string $id, callable $use): void
{
    global $port, $password, $certificate;
    if ($certificate) {
        $path = "tls://127.0.0.1:$port?auth=$password";
    } else {
        $path = "tcp://127.0.0.1:$port?timeout=20";
    }
    session_id($id);
    session_start(['save_handler' => 'redis', 'save_path' => $path, 'use_cookies' => '0',
                   'use_only_cookies' => '1', 'cache_limiter' => '', 'gc_maxlifetime' => '1000']);
    $use();
    session_write_close();
    $_SESSION = [];
}

function sessions(Redis $redis): void
{
    session('visitor1', function () { $_SESSION['basket'] = ['book', 'lamp']; });
    session('visitor2', function () { expect('another', $_SESSION, []); });
    session('visitor1', function () { expect('basket', $_SESSION['basket'], ['book', 'lamp']); });
    expect('ttl', $redis->ttl('PHPREDIS_SESSION:visitor1') > 900, true);
    session('visitor1', function () { session_destroy(); });
    expect('destroyed', $redis->exists('PHPREDIS_SESSION:visitor1'), 0);
}

/* The server is killed and comes back between two requests of a visitor. */
function restart(Redis $redis): void
{
    session('stays', function () { $_SESSION['views'] = 1; });
    $redis->set('stays', 'here');
    $life = $redis->info('server')['run_id'];
    fwrite(STDOUT, "DO restart\n");
    fgets(STDIN);
    $life === connect()->info('server')['run_id'] && throw new Exception('the same server');
    session('stays', function () { expect('views', $_SESSION['views']++, 1); });
    session('stays', function () { expect('views', $_SESSION['views'], 2); });
    /* The connection that was cut is made anew by the next command or the one after it. */
    try {
        $found = $redis->get('stays');
    } catch (RedisException | ErrorException $error) {
        $found = $redis->get('stays');
    }
    expect('connection', $found, 'here');
}

/* Not by echo, after which PHP begins no session. */
fwrite(STDOUT, 'PHP ' . PHP_VERSION . ', phpredis ' . phpversion('redis') . ": $what"
    . ($certificate ? ', password and TLS' : '') . "\n");
$redis = connect();
if ($what === 'restart') {
    restart($redis);
} else {
    $redis->flushAll();
    strings($redis);
    pipelines($redis);
    cache($redis);
    sessions($redis);
}
