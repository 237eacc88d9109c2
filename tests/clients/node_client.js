/*
 * The string, expire, scan and keyspace parts of two public client libraries' own behaviour, against a
 * server.   node node_client.js MODULES LIBRARY PORT [PASSWORD CERTIFICATE]   (the latter two: TLS)
 */
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');
const [modules, library, port, password, certificate] = process.argv.slice(2);
const ca = certificate && fs.readFileSync(certificate);

async function withRedis() {
    const { createClient, RESP_TYPES } = require(path.join(modules, 'redis'));
    for (const RESP of [2, 3]) {
        const client = createClient({
            socket: { port: Number(port), host: '127.0.0.1', tls: Boolean(ca), ca }, password, RESP, name: 'tester'
        });
        client.on('error', (error) => { throw error; });
        await client.connect();
        assert.strictEqual(await client.ping(), 'PONG');
        await client.flushAll();
        assert.strictEqual(await client.set('key', 'value'), 'OK');
        assert.strictEqual(await client.get('key'), 'value');
        assert.strictEqual(await client.get('nosuch'), null);
        assert.strictEqual(await client.set('key', 'other', { NX: true }), null);
        assert.strictEqual(await client.set('key', 'other', { XX: true, GET: true }), 'value');
        assert.strictEqual(await client.set('ttl', 'v', { EX: 100 }), 'OK');
        assert.ok(await client.ttl('ttl') > 90);
        assert.ok(await client.pTTL('ttl') > 90000);
        assert.strictEqual(Number(await client.persist('ttl')), 1);
        assert.strictEqual(await client.ttl('ttl'), -1);
        assert.strictEqual(Number(await client.expire('ttl', 50)), 1);
        assert.ok(await client.expireTime('ttl') > 1700000000);
        assert.strictEqual(await client.incr('n'), 1);
        assert.strictEqual(await client.incrBy('n', 10), 11);
        assert.strictEqual(await client.decrBy('n', 2), 9);
        assert.strictEqual(String(await client.incrByFloat('n', 0.5)), '9.5');
        assert.strictEqual(await client.append('key', '!'), 6);
        assert.strictEqual(await client.strLen('key'), 6);
        assert.strictEqual(await client.getRange('key', 0, 2), 'oth');
        assert.strictEqual(await client.setRange('key', 0, 'OTH'), 6);
        assert.strictEqual(await client.getDel('key'), 'OTHer!');
        assert.strictEqual(await client.getEx('ttl', { PERSIST: true }), 'v');
        assert.strictEqual(await client.mSet({ a: '1', b: '2' }), 'OK');
        assert.deepStrictEqual(await client.mGet(['a', 'nosuch', 'b']), ['1', null, '2']);
        assert.strictEqual(Number(await client.mSetNX({ a: '3', z: '4' })), 0);
        assert.strictEqual(await client.exists(['a', 'b', 'z']), 2);
        assert.strictEqual(await client.type('a'), 'string');
        assert.strictEqual(await client.rename('a', 'aa'), 'OK');
        assert.strictEqual(Number(await client.copy('aa', 'a')), 1);
        assert.strictEqual(await client.del(['a', 'aa']), 2);
        assert.strictEqual(await client.unlink('b'), 1);
        const many = [];
        for (let i = 0; i < 500; i++) many.push(client.set(`scan:${i}`, `${i}`)); /* pipelined by itself */
        await Promise.all(many);
        const seen = new Set();
        for await (const keys of client.scanIterator({ MATCH: 'scan:*', COUNT: 33 }))
            for (const key of Array.isArray(keys) ? keys : [keys]) seen.add(key);
        assert.strictEqual(seen.size, 500);
        assert.strictEqual((await client.keys('scan:1?')).length, 10);
        assert.strictEqual(await client.dbSize(), 502);
        assert.ok(await client.randomKey());
        await client.set('text', 'x');
        await assert.rejects(client.incr('text'), /not an integer/);
        await assert.rejects(client.sendCommand(['LPUSH', 'a', 'b']), /unknown command/);
        assert.strictEqual(await client.sendCommand(['RI.CREATE', `idx${RESP}`]), 'OK');
        assert.strictEqual(await client.sendCommand(['RI.SET', `idx${RESP}`, 'k', 'v']), 'OK');
        assert.deepStrictEqual(await client.sendCommand(['RI.RANGE', `idx${RESP}`, 'a', 'z']), ['k', 'v']);
        const bytes = Buffer.from([0, 255, 10, 13, 249]);
        await client.set(bytes, bytes);
        const typed = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
        assert.ok((await typed.get(bytes)).equals(bytes));
        /* There are no transactions: multi() writes nothing and says so, and the connection goes on. */
        await assert.rejects(client.multi().set('multi', '1').incr('multi').exec(), /EXECABORT/);
        assert.strictEqual(await client.get('multi'), null);
        assert.deepStrictEqual(await client.multi().set('multi', '1').incr('multi').execAsPipeline(), ['OK', 2]);
        assert.strictEqual(await client.clientGetName(), 'tester');
        await client.select(4);
        assert.strictEqual(await client.dbSize(), 0);
        await client.select(0);
        await client.close();
    }
}

async function withIoredis() {
    const Redis = require(path.join(modules, 'ioredis'));
    const address = { port: Number(port), host: '127.0.0.1', password, tls: ca && { ca } };
    const client = new Redis({ ...address, connectionName: 'io', db: 2 });
    await client.flushall();
    assert.strictEqual(await client.set('key', 'value', 'EX', 100), 'OK');
    assert.strictEqual(await client.get('key'), 'value');
    assert.ok((await client.getBuffer('key')).equals(Buffer.from('value')));
    assert.ok(await client.ttl('key') > 90);
    assert.strictEqual(await client.setnx('key', 'x'), 0);
    assert.strictEqual(await client.setex('soon', 100, 'x'), 'OK');
    assert.strictEqual(await client.psetex('sooner', 30, 'x'), 'OK');
    await new Promise((done) => setTimeout(done, 60));
    assert.strictEqual(await client.get('sooner'), null);
    assert.strictEqual(await client.getset('key', 'new'), 'value');
    assert.strictEqual(await client.ttl('key'), -1);
    assert.strictEqual(await client.expireat('key', 4102444800), 1);
    assert.strictEqual(await client.expiretime('key'), 4102444800);
    assert.strictEqual(await client.pexpireat('key', 4102444800000, 'NX'), 0);
    assert.deepStrictEqual(await client.mset('a', 1, 'b', 2), 'OK');
    assert.deepStrictEqual(await client.mget('a', 'b', 'c'), ['1', '2', null]);
    const replies = await client.pipeline().incr('n').incr('n').get('n').lpush('a', 'b').exec();
    assert.deepStrictEqual(replies.slice(0, 3), [[null, 1], [null, 2], [null, '2']]);
    assert.match(replies[3][0].message, /unknown command/);
    await assert.rejects(client.multi().set('multi', '1').incr('multi').exec(), /EXECABORT/);
    assert.strictEqual(await client.get('multi'), null);
    const many = client.pipeline();
    for (let i = 0; i < 2000; i++) many.set(`scan:${i}`, i);
    await many.exec();
    const seen = new Set();
    for await (const keys of client.scanStream({ match: 'scan:*', count: 100 })) keys.forEach((key) => seen.add(key));
    assert.strictEqual(seen.size, 2000);
    assert.strictEqual((await client.keys('scan:199*')).length, 11);
    assert.strictEqual(await client.touch('a', 'b', 'c'), 2);
    assert.strictEqual(await client.renamenx('a', 'b'), 0);
    assert.strictEqual(await client.client('GETNAME'), 'io');
    assert.strictEqual(await client.call('RI.CREATE', 'io'), 'OK');
    assert.strictEqual(await client.call('RI.MSET', 'io', 'b', '2', 'a', '1'), 'OK');
    assert.deepStrictEqual(await client.call('RI.PREFIX', 'io', ''), ['a', '1', 'b', '2']);
    await assert.rejects(client.call('GET'), /wrong number of arguments/);
    /* A connection that is cut comes back by itself, in its database. */
    const id = await client.client('ID');
    const other = new Redis(address);
    assert.strictEqual(await other.client('KILL', 'ID', id), 1);
    assert.strictEqual(await client.get('b'), '2');
    assert.strictEqual(await client.quit(), 'OK');
    other.disconnect();
}

(library === 'redis' ? withRedis() : withIoredis()).then(() => {
    console.log(`${library}: ok`);
    process.exit(0);
}, (error) => {
    console.error(error);
    process.exit(1);
});
