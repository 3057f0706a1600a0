/** A relay between workers and their manager that counts the frames of HTTP/2. Both speak it without TLS here. */
import { createConnection, createServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'
import { hostOf, portOf } from '#proto/index.ts'

/** RFC 9113 section 3.4: what a client sends before its first frame. */
const PREFACE_BYTES = 24
/** RFC 9113 section 4.1: a length of three bytes, a type, flags and a stream. */
const HEADER_BYTES = 9
const LENGTH_BYTES = 3

export type Wire = { frames: number; bytes: number }

/** Resolves with the address of the relay. What passes in both directions is added to `wire`. */
export async function startRelay(target: string, wire: Wire): Promise<string> {
  const server = createServer({ noDelay: true }, (near) => {
    const far = createConnection({ host: hostOf(target), port: Number(portOf(target)), noDelay: true })
    pass(near, far, wire, PREFACE_BYTES)
    pass(far, near, wire, 0)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return `127.0.0.1:${(server.address() as AddressInfo).port}`
}

function pass(from: Socket, to: Socket, wire: Wire, prefaceBytes: number): void {
  let toSkip = prefaceBytes
  let header = Buffer.alloc(0)
  from.on('data', (chunk: Buffer) => {
    to.write(chunk)
    wire.bytes += chunk.length
    for (let at = 0; at < chunk.length;) {
      if (toSkip > 0) {
        const skipped = Math.min(toSkip, chunk.length - at)
        toSkip -= skipped
        at += skipped
        continue
      }
      const part = chunk.subarray(at, at + HEADER_BYTES - header.length)
      header = Buffer.concat([header, part])
      at += part.length
      if (header.length < HEADER_BYTES) continue
      wire.frames += 1
      toSkip = header.readUIntBE(0, LENGTH_BYTES)
      header = Buffer.alloc(0)
    }
  })
  from.on('error', () => to.destroy())
  from.on('close', () => to.destroy())
}
