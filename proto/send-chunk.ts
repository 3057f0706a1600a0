/**
 * Sends messages that are bytes alone (`ModuleService.Fetch`). grpc-js copies each message two or three times and leaves the
 * copies to the collector, which then takes more time than all the rest; so they are framed where they lie.
 */
import { Metadata } from '@grpc/grpc-js'
import { FRAME_HEAD_BYTES, frameInPlace } from './byte-frames.ts'
import type { ServerWritableStream } from './grpc.ts'

/** A buffer that chunks are read into before they are sent, `space` being where they belong. */
export type ChunkBuffer = { space: Buffer; framed: Buffer }

export function createChunkBuffer(maxBytes: number): ChunkBuffer {
  const framed = Buffer.allocUnsafeSlow(FRAME_HEAD_BYTES + maxBytes)
  return { framed, space: framed.subarray(FRAME_HEAD_BYTES) }
}

type Direct = { write: (data: Buffer, done: (error?: Error | null) => void) => boolean; destroyed: boolean }

/**
 * Sends the first bytes of a chunk as a message of the call. Resolves when the connection has taken them and the buffer may
 * be used again; never when the call is cancelled first.
 */
export function sendChunk<I, O>(
  call: ServerWritableStream<I, O>,
  { framed, space }: ChunkBuffer,
  sizeBytes: number,
  messageOf: (data: Buffer) => O,
): Promise<void> {
  const stream = streamBelow(call)
  return new Promise((resolve) => {
    if (stream === undefined) {
      call.write(messageOf(Buffer.from(space.subarray(0, sizeBytes))), () => resolve())
      return
    }
    if (stream.destroyed) return
    call.sendMetadata(new Metadata())
    stream.write(frameInPlace(framed, sizeBytes), (error) => error ?? resolve())
  })
}

/**
 * The HTTP/2 stream of a call. grpc-js has no way to give it bytes that are a message already; one that keeps its stream
 * elsewhere is given messages, which is slower and nothing else.
 */
export function streamBelow(call: object): Direct | undefined {
  const { stream } = ((call as { call?: unknown }).call ?? {}) as { stream?: Partial<Direct> }
  return typeof stream?.write === 'function' ? (stream as Direct) : undefined
}
