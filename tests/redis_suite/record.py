"""Stands between Redis' suite and a server, and notes which commands each test sends, whatever client it uses."""
import asyncio
import threading

MARK = b"### Starting test "
WORDS, WORD_BYTES = 64, 64


class Requests:
    """Cuts what a client sends into commands; gives up on a connection that sends what is none."""

    def __init__(self, take):
        self.take, self.data, self.broken = take, bytearray(), False

    def feed(self, data):
        if self.broken:
            return
        self.data += data
        while self.data:
            try:
                used, words = self.one()
            except ValueError:
                self.broken = True
                return
            if used == 0:
                return
            del self.data[:used]
            if words:
                self.take(words)

    def line(self, at):
        end = self.data.find(b"\n", at)
        return (None, at) if end < 0 else (bytes(self.data[at:end]).rstrip(b"\r"), end + 1)

    def one(self):
        line, at = self.line(0)
        if line is None:
            return 0, None
        if not line.startswith(b"*"):
            return at, line.split()
        words = []
        for number in range(int(line[1:])):
            size, at = self.line(at)
            if size is None:
                return 0, None
            if not size.startswith(b"$"):
                raise ValueError("no bulk string")
            end = at + int(size[1:])
            if len(self.data) < end + 2:
                return 0, None
            if number < WORDS:
                words.append(bytes(self.data[at:min(end, at + max(WORD_BYTES, 400 * (number == 2)))]))
            at = end + 2
        return at, words


class Recorder:
    """Listens on a port of its own for the server's; `commands` has, for each test, the words it sent.

    The suite says which test begins with DEBUG LOG, on a connection of its own, and waits for the answer."""

    def __init__(self, server_port):
        self.server_port, self.port = server_port, None
        self.test, self.commands = None, {}
        self.ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.serve()), daemon=True).start()
        self.ready.wait()

    def take(self, words):
        if words[0].lower() == b"debug" and len(words) > 2 and words[2].startswith(MARK):
            name, _, file = words[2][len(MARK):].decode(errors="replace").rpartition(" in tests/")
            self.test = (file.removesuffix(".tcl"), name)
            self.commands.setdefault(self.test, set())
        elif self.test:
            self.commands[self.test].add(tuple(words))

    async def serve(self):
        server = await asyncio.start_server(self.client, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        await server.serve_forever()

    async def client(self, reader, writer):
        requests = Requests(self.take)
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.server_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self.pump(reader, up_writer, requests.feed), self.pump(up_reader, writer))

    @staticmethod
    async def pump(reader, writer, look=lambda data: None):
        try:
            while data := await reader.read(1 << 16):
                look(data)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()
