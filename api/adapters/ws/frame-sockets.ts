/** Sockets whose text frames are handled one after the other by a service: the adapter sends, reads and limits. */
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { WebSocketServer } from 'ws'
import type { RawData, WebSocket } from 'ws'
import type { CallerAddress } from '#http/index.ts'
import { pingPeriodically } from '#core/streams/index.ts'
import type { FrameEndpoint, FrameSession, FrameSocket, StreamOwner, Streams } from '#core/streams/index.ts'
import { CLOSE } from './close-codes.ts'
import { UnknownCallers } from './unknown-callers.ts'

type OpenSession = NonNullable<ReturnType<FrameEndpoint['match']>>

/** Longer frames close their socket with 1009. */
const MAX_FRAME_BYTES = 64 * 1024
/** Frames of one socket that wait for their turn; above it, the socket is not read. */
const MAX_WAITING_FRAMES = 32
/** The limit of bytes that wait for a slow reader; above it, the socket is closed. */
const MAX_BUFFERED_BYTES = 4 * 1024 * 1024
/** A reader with fewer waiting bytes keeps pace. */
const PACE_BYTES = 256 * 1024
/** The time for the frame that tells who the caller is. */
const ADMIT_DEADLINE_MS = 10_000

export class FrameSockets {
  readonly #streams: Streams
  readonly #server = new WebSocketServer({ noServer: true, maxPayload: MAX_FRAME_BYTES })
  readonly #sockets = new Set<WebSocket>()
  readonly #addressOf: CallerAddress
  readonly #unknown = new UnknownCallers()

  constructor(streams: Streams, addressOf: CallerAddress) {
    this.#streams = streams
    this.#addressOf = addressOf
  }

  take(request: IncomingMessage, socket: Duplex, head: Buffer, open: OpenSession): void {
    if (socket.destroyed) return
    const address = this.#addressOf(request)
    const known = this.#unknown.add(address, () => socket.destroy())
    socket.once('close', known)
    this.#server.handleUpgrade(request, socket, head, (upgraded) => {
      this.#sockets.add(upgraded)
      upgraded.once('close', () => this.#sockets.delete(upgraded))
      serve(upgraded, socket, {
        streams: this.#streams,
        known,
        open: (frames) => open({ headers: request.headers, address }, frames),
      })
    })
  }

  /** Closes every socket. */
  stop(): void {
    for (const socket of this.#sockets) socket.close(CLOSE.goingAway, 'the server is stopping')
  }
}

type Serving = {
  streams: Streams
  /** The caller of the socket is known. */
  known: () => void
  open: (socket: FrameSocket) => FrameSession
}

function serve(upgraded: WebSocket, raw: Duplex, { streams, known, open }: Serving): void {
  let release: (() => void) | undefined
  const account = streams.budget.open({
    get waitingBytes() {
      return upgraded.bufferedAmount
    },
    get keptBytes() {
      return session.keptBytes
    },
    cut: () => upgraded.terminate(),
  })
  const admitting = setTimeout(
    () => upgraded.close(CLOSE.policyViolation, 'send a token with the first frame'),
    ADMIT_DEADLINE_MS,
  )
  const session = open({
    admit(owner: StreamOwner) {
      release = streams.limits.admit(owner)
      clearTimeout(admitting)
      known()
    },
    send(text) {
      if (upgraded.readyState !== upgraded.OPEN) return
      if (upgraded.bufferedAmount <= MAX_BUFFERED_BYTES) {
        upgraded.send(text)
        return account.update()
      }
      // The socket is closed when its reader has read everything, or after half a minute.
      upgraded.close(CLOSE.tryAgainLater, 'frames come faster than they are read')
      session.closed()
    },
    drained: () => drained(upgraded, raw),
    close: (code, reason) => upgraded.close(code, reason),
  })
  let waiting = 0
  let turn: Promise<void> = Promise.resolve()
  const heard = pingPeriodically(upgraded)
  upgraded.on('error', () => undefined)
  upgraded.on('message', (data: RawData, isBinary: boolean) => {
    heard()
    if (isBinary) return upgraded.close(CLOSE.unsupportedData, 'frames must be JSON texts')
    if (++waiting >= MAX_WAITING_FRAMES) upgraded.pause()
    turn = turn.then(async () => {
      if (upgraded.readyState === upgraded.OPEN) await session.take(textOf(data))
      if (--waiting < MAX_WAITING_FRAMES / 2 && upgraded.isPaused) upgraded.resume()
    })
  })
  raw.on('drain', account.update)
  upgraded.once('close', () => {
    clearTimeout(admitting)
    release?.()
    account.close()
    session.closed()
  })
}

function textOf(data: RawData): string {
  return (Array.isArray(data) ? Buffer.concat(data) : Buffer.from(data as Buffer)).toString('utf8')
}

async function drained(socket: WebSocket, raw: Duplex): Promise<void> {
  while (socket.bufferedAmount > PACE_BYTES && socket.readyState === socket.OPEN) {
    await new Promise<void>((resolve) => {
      const tell = () => {
        raw.off('drain', tell)
        socket.off('close', tell)
        resolve()
      }
      raw.on('drain', tell)
      socket.on('close', tell)
    })
  }
}
