# What programs do with redis-rb.   ruby ruby_client.rb use|restart PORT [PASSWORD CERTIFICATE]
require 'json'
require 'redis'

$stdout.sync = true
WHAT, PORT, PASSWORD, CERTIFICATE = ARGV

def connect(**more)
  options = { host: '127.0.0.1', port: PORT.to_i, timeout: 30, id: 'shop', **more }
  options.update(password: PASSWORD, ssl: true, ssl_params: { ca_file: CERTIFICATE }) if CERTIFICATE
  Redis.new(**options)
end

def expect(what, found, wanted)
  raise "#{what}: #{found.inspect} instead of #{wanted.inspect}" unless found == wanted
end

def refused
  answer = yield
rescue Redis::CommandError => e
  e.message
else
  raise "#{answer.inspect} instead of an error"
end

def strings(redis)
  expect 'ping', redis.ping, 'PONG'
  expect 'set', redis.set('key', 'value', ex: 100, nx: true), true
  expect 'nx', redis.set('key', 'other', nx: true), false
  expect 'ttl', redis.ttl('key') > 90, true
  expect 'get', [redis.get('key'), redis.get('nothing')], ['value', nil]
  expect 'getex', redis.getex('key', persist: true), 'value'
  expect 'ttl', redis.ttl('key'), -1
  expect 'getdel', [redis.getdel('key'), redis.exists?('key')], ['value', false]
  expect 'mapped', [redis.mapped_mset('a' => '1', 'b' => '2'), redis.mapped_mget('a', 'x', 'b')],
         ['OK', { 'a' => '1', 'x' => nil, 'b' => '2' }]
  expect 'incr', [redis.incr('n'), redis.incrby('n', 10), redis.decrby('n', 2)], [1, 11, 9]
  expect 'incrbyfloat', redis.incrbyfloat('n', 0.5), 9.5
  expect 'setrange', [redis.set('t', 'hello'), redis.setrange('t', 1, 'a'), redis.get('t')],
         ['OK', 5, 'hallo']
  expect 'copy', [redis.copy('t', 'u'), redis.rename('u', 'w'), redis.type('w')],
         [true, 'OK', 'string']
  expect 'del', redis.del('a', 'b', 'nothing'), 2
  expect 'error', refused { redis.incr('t') }, 'ERR value is not an integer or out of range'
  expect 'unknown', refused { redis.lpush('l', 1) }.include?('unknown command'), true
  expect 'info', redis.info('server')['redis_mode'], 'standalone'
  expect 'database', [redis.select(3), redis.dbsize, redis.select(0)], ['OK', 0, 'OK']
end

def pipelines(redis)
  replies = redis.pipelined { |pipe| 2000.times { |i| pipe.set("scan:#{i}", i) } }
  expect 'pipelined', replies, ['OK'] * 2000
  incremented = nil
  redis.pipelined do |pipe|
    incremented = pipe.incr('p')
    pipe.expire('p', 100)
  end
  expect 'future', incremented.value, 1
  # There are no transactions: nothing is written, and the connection goes on.
  redis.set('there', 'before')
  said = refused do
    redis.multi do |transaction|
      transaction.set('there', 'after')
      transaction.set('new', 1)
    end
  end
  expect 'multi', said[0, 9], 'EXECABORT'
  expect 'nothing written', redis.mget('there', 'new'), ['before', nil]
  found = redis.scan_each(match: 'scan:*', count: 100).to_a
  expect 'scan', [found.size, found.uniq.size], [2000, 2000]
  expect 'keys', redis.keys('scan:199?').size, 10
end

def cache(redis)
  page = { 'title' => 'café', 'rows' => (1..100).to_a }
  redis.setex('page', 100, JSON.generate(page))
  expect 'page', JSON.parse(redis.get('page')), page
  redis.pexpire('page', 20)
  give_up = Time.now + 20
  sleep 0.01 while redis.exists?('page') && Time.now < give_up
  expect 'expired', [redis.get('page'), redis.ttl('page')], [nil, -2]
end

def counters
  threads = Array.new(8) do
    Thread.new do
      redis = connect
      300.times { redis.incr('hits') }
      redis.close
    end
  end
  threads.each(&:join)
  expect 'hits', connect.get('hits'), '2400'
end

# Idempotent commands, so the client may send them again, as often as it is told to.
def restart(redis)
  life = redis.info('server')['run_id']
  100.times { |i| redis.set("key:#{i}", i) }
  puts 'DO restart'
  $stdin.gets
  expect 'all there', redis.mget(*Array.new(100) { |i| "key:#{i}" }), Array.new(100, &:to_s)
  expect 'another server', redis.info('server')['run_id'] == life, false
  expect 'name', redis.call('client', 'getname'), 'shop'
end

guard = ', password and TLS' if CERTIFICATE
puts "ruby #{RUBY_VERSION}, redis-rb #{Redis::VERSION}: #{WHAT}#{guard}"
if WHAT == 'restart'
  restart(connect(reconnect_attempts: 5))
else
  redis = connect
  redis.flushall
  strings(redis)
  pipelines(redis)
  cache(redis)
  counters
end
