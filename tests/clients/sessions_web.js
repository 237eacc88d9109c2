/*
 * A web server that counts its visitors' views in sessions.   node sessions_web.js MODULES PORT
 */
'use strict';
const http = require('http');
const path = require('path');
const [modules, port] = process.argv.slice(2);
const { createClient } = require(path.join(modules, 'redis'));
const { RedisStore } = require(path.join(modules, 'connect-redis'));
const session = require(path.join(modules, 'express-session'));

async function main() {
    const client = createClient({ socket: { port: Number(port), host: '127.0.0.1' }, RESP: 3 });
    let connected = 0;
    client.on('error', (error) => console.log(`redis: ${error.message}`));
    client.on('ready', () => console.log(`connected: ${++connected}`)); /* again, by itself */
    await client.connect();
    const store = new RedisStore({ client });
    const use = session({
        store, secret: 'a test', resave: false, saveUninitialized: false,
        cookie: { maxAge: 3600000 }
    });
    const pages = {
        '/': (request, reply) => {
            request.session.views = (request.session.views || 0) + 1;
            reply({ views: request.session.views });
        },
        '/count': (request, reply) => store.length((error, n) => reply(error || { sessions: n })),
        '/logout': (request, reply) =>
            request.session.destroy((error) => reply(error || { views: 0 }))
    };
    const server = http.createServer((request, response) => {
        const reply = (found) => {
            response.statusCode = found instanceof Error ? 500 : 200;
            response.end(JSON.stringify(found instanceof Error ? found.message : found));
        };
        use(request, response,
            (error) => error ? reply(error) : pages[request.url](request, reply));
    });
    server.listen(0, '127.0.0.1', () => console.log(`listening on ${server.address().port}`));
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
