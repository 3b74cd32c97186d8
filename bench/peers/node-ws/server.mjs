// The server of `chat` with `ws`, on one thread as Node.js runs it, and without compression.
//
// A message is encoded once, and all sockets of the room send the same buffer. The library adds the head of the
// frame for each socket, and makes a system call for each frame.

import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { createServer } from 'node:http';
import { WebSocketServer } from 'ws';

/** Bytes that may wait for a client that does not read; beyond them the client is dropped. */
const WAITING_BYTES_MAX = 1 << 20;

const AS_TEXT = { binary: false };

/** The rooms, by name: the sockets in each, and the number of its messages. */
const rooms = new Map();

const http = createServer((_, response) => response.writeHead(404).end());
const sockets = new WebSocketServer({ server: http, clientTracking: false, perMessageDeflate: false });

sockets.on('connection', (socket) => {
  let name = null;
  socket.on('error', () => socket.terminate());
  socket.on('close', () => rooms.forEach((room) => room.sockets.delete(socket)));
  socket.on('message', (data) => {
    const message = JSON.parse(data);
    switch (message.type) {
      case 'hello':
        name = message.token;
        return socket.send(JSON.stringify({ type: 'welcome', name }));
      case 'enter': {
        const room = enter(message.room, socket);
        const { sequence } = room;
        return socket.send(JSON.stringify({ type: 'entered', room: message.room, sequence }));
      }
      case 'say':
        return say(message, name, socket);
      default:
        return socket.close(1008);
    }
  });
});

function enter(name, socket) {
  if (!rooms.has(name)) {
    rooms.set(name, { sockets: new Set(), sequence: 0 });
  }
  const room = rooms.get(name);
  room.sockets.add(socket);
  return room;
}

function say({ room: name, text, key }, author, socket) {
  const room = rooms.get(name);
  if (!room?.sockets.has(socket)) {
    return socket.close(1008);
  }
  room.sequence += 1;
  const { sequence } = room;
  const message = { sequence, author, text, time: Date.now() };
  const frame = Buffer.from(JSON.stringify({ type: 'said', room: name, message }));
  socket.send(JSON.stringify({ type: 'stored', room: name, key, sequence }));
  for (const member of room.sockets) {
    if (member.bufferedAmount > WAITING_BYTES_MAX) {
      member.terminate();
    } else {
      member.send(frame, AS_TEXT);
    }
  }
}

http.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, () => {
  const { version } = createRequire(import.meta.url)('ws/package.json');
  const server = ['client', '--server', 'node-ws', '--process', `${process.pid}`];
  const address = ['--address', `127.0.0.1:${http.address().port}`];
  const row = ['--runtime-version', `${version} on Node.js ${process.versions.node}`, '--threads', '1'];
  const work = process.argv.slice(2);
  const client = spawn(process.env.BENCH_CLIENT, [...server, ...address, ...row, ...work], {
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  client.on('error', (error) => {
    console.error(`the client could not be started: ${error.message}`);
    process.exit(1);
  });
  client.on('exit', (code) => process.exit(code ?? 1));
});
