/**
 * The floor of module downloads: bare TCP from a process that holds the bytes; the receiver hashes and writes them as
 * they arrive. `serve <file>` answers every connection with the file; `bring <port> <folder> <count>` fetches it `count`
 * times at once.
 */
import { createHash } from 'node:crypto'
import { closeSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'

/** The size of one read. */
const BUFFER_BYTES = 256 * 1024

const [role, ...rest] = process.argv.slice(2)
process.once('disconnect', () => process.exit(0))
if (role === 'serve') serve(...rest)
else bring(...rest)

function serve(path = ''): void {
  const bytes = readFileSync(path)
  const server = createServer((socket) => void socket.end(bytes))
  server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port))
}

function bring(port = '', folder = '', count = ''): void {
  mkdirSync(folder, { recursive: true })
  process.once('message', () => {
    const spent = process.cpuUsage()
    void Promise.all(
      Array.from({ length: Number(count) }, (_, index) => bringOne(Number(port), join(folder, String(index)))),
    ).then((digests) => {
      const { user, system } = process.cpuUsage(spent)
      process.send?.({ digests, cpuMs: (user + system) / 1000 })
    })
  })
  process.send?.('ready')
}

function bringOne(port: number, path: string): Promise<string> {
  const file = openSync(path, 'w')
  const hash = createHash('sha256')
  const onread = {
    buffer: Buffer.allocUnsafe(BUFFER_BYTES),
    callback(sizeBytes: number, buffer: Uint8Array) {
      const piece = buffer.subarray(0, sizeBytes)
      hash.update(piece)
      writeSync(file, piece)
      return true
    },
  }
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', onread })
    socket.once('error', reject)
    socket.once('end', () => {
      closeSync(file)
      resolve(`sha256:${hash.digest('hex')}`)
    })
  })
}
