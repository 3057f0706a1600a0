/** One open socket: frames in are published in their order, messages of the channel go out. */
import { isUtf8 } from 'node:buffer'
import type { RawData, WebSocket } from 'ws'
import type { MessageAccess } from '#api/devices/index.ts'
import { JSON_TYPE, OCTET_STREAM, SENML_JSON, TEXT_PLAIN, judgeByBytes, parseSubtopic } from '#api/messages/index.ts'
import type { Delivery, EndReason, IncomingMessage } from '#api/messages/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Account } from '#core/streams/index.ts'
import { monotonicMs, sleep } from '#core/time.ts'
import type { WebSocketAdapterDeps } from './index.ts'
import type { Opening } from './upgrade.ts'

/** Frames of one socket whose commit is awaited; beyond, the socket is not read. */
const MAX_PENDING_FRAMES = 1000
/** A socket that nothing can be stored for is read no further, and closed after so long (contract section 7.6). */
const FULL_DEADLINE_MS = 30_000
const FULL_RETRY_MS = 100
/** Bytes that wait for a slow reader; beyond, it is closed. */
const MAX_BUFFERED_BYTES = 4 * 1024 * 1024
/** A peer is asked for a sign of life so often, and given up when the answer is missing at the next. */
const PING_MS = 30_000

/** Close codes (RFC 6455 section 7.4.1 and the registry it opens). */
const CLOSE = {
  invalidPayload: 1007,
  policyViolation: 1008,
  internal: 1011,
  tryAgainLater: 1013,
  goingAway: 1001,
} as const

const END_CODES: Record<EndReason, { code: number; reason: string }> = {
  forbidden: { code: CLOSE.policyViolation, reason: 'no longer allowed on this channel' },
  behind: { code: CLOSE.tryAgainLater, reason: 'fallen behind, connect again' },
  stopping: { code: CLOSE.goingAway, reason: 'the server is stopping' },
  closed: { code: 1000, reason: '' },
}

/** `account`: what waits for the socket's reader is counted there. */
export function openSession(socket: WebSocket, opening: Opening, deps: WebSocketAdapterDeps, account: Account): void {
  const { messages, gate } = deps
  const { path, filter, subscribe, clientKey } = opening
  /** Says of a message that this socket sent it; a client is known by its id, a user has none. */
  const sender = {}
  let pending = 0
  let frames = 0
  /** Frames are authorised and handed over one after the other; answers leave in that order too. */
  let turn: Promise<void> = Promise.resolve()
  let answers: Promise<void> = Promise.resolve()
  let isAlive = true
  /** Ends the deliveries. */
  let stopFollowing = () => undefined as void

  const close = (code: number, reason: string) => {
    if (socket.readyState === socket.OPEN) socket.close(code, reason)
  }

  async function messageOf(data: Buffer, isBinary: boolean): Promise<IncomingMessage> {
    const access = await gate.authorize(await opening.credentials(), path, 'publish')
    const subtopic = parseSubtopic(opening.rest)
    const receivedAtSeconds = Date.now() / 1000
    const content = judgeByBytes(data, { subtopic, receivedAtSeconds })
    // What is no JSON and came as text is text.
    const isText = content.kind === 'raw' && !isBinary
    const contentType =
      content.kind === 'records'
        ? SENML_JSON
        : content.kind === 'documents'
          ? JSON_TYPE
          : isText
            ? TEXT_PLAIN
            : OCTET_STREAM
    return {
      access,
      subtopic,
      protocol: 'ws',
      receivedAtSeconds,
      content: isText ? { ...content, contentType } : content,
      original: { contentType, body: data },
      sender,
    }
  }

  /** The commit of the frame. While nothing can be stored it is tried again, and the socket is not read. */
  async function store(message: IncomingMessage): Promise<void> {
    const sinceMs = monotonicMs()
    for (;;) {
      try {
        await messages.publish(message)
        return
      } catch (error) {
        if (kindOf(error) !== 'unavailable' || socket.readyState !== socket.OPEN) throw error
        if (monotonicMs() - sinceMs > FULL_DEADLINE_MS) throw error
        socket.pause()
        await sleep(FULL_RETRY_MS)
      }
    }
  }

  /** Hands a frame over; the next one waits while this one finds no room, or it would overtake it. */
  async function handOver(data: Buffer, isBinary: boolean): Promise<{ stored: Promise<void> }> {
    const message = await messageOf(data, isBinary)
    const stored = store(message)
    // A full queue refuses at once; a commit takes longer than a turn of the event loop.
    const isTaken = await Promise.race([stored.then(() => true), nextTurn().then(() => !socket.isPaused)])
    if (!isTaken) await stored
    return { stored }
  }

  function take(data: Buffer, isBinary: boolean): void {
    const frame = ++frames
    if (++pending >= MAX_PENDING_FRAMES) socket.pause()
    const handed = turn.then(() => handOver(data, isBinary))
    turn = handed.then(
      () => undefined,
      () => undefined,
    )
    answers = answers.then(async () => {
      try {
        await (
          await handed
        ).stored
        if (opening.acknowledges) send(`{"ack":${frame}}`, false)
      } catch (error) {
        closeFor(error)
      } finally {
        if (--pending < MAX_PENDING_FRAMES / 2 && socket.isPaused) socket.resume()
      }
    })
    // The frame that fails first closes the socket; those behind it may fail unheard.
    handed.then(({ stored }) => stored.catch(() => undefined)).catch(() => undefined)
  }

  function closeFor(error: unknown): void {
    const kind = kindOf(error)
    const message = error instanceof ServiceError ? error.message.slice(0, 120) : ''
    if (kind === 'malformed' || kind === 'unprocessable') close(CLOSE.invalidPayload, message)
    else if (kind === 'forbidden' || kind === 'not_found' || kind === 'unauthenticated' || kind === 'conflict')
      close(CLOSE.policyViolation, message)
    else if (kind === 'internal') close(CLOSE.internal, 'internal error')
    else close(CLOSE.tryAgainLater, message)
  }

  function send(data: string | Buffer, binary: boolean): void {
    if (socket.readyState !== socket.OPEN) return
    if (socket.bufferedAmount <= MAX_BUFFERED_BYTES) {
      socket.send(data, { binary })
      return account.update()
    }
    close(CLOSE.tryAgainLater, 'messages come faster than they are read')
    // The socket closes when its reader has come to the end, or has not for half a minute.
    stopFollowing()
  }

  function deliver(deliveries: readonly Delivery[]): void {
    let sent = 0
    for (const { message } of deliveries) {
      if (message.sender === sender || (clientKey !== null && message.publisherKey === clientKey)) continue
      send(message.payload, !isText(message.contentType, message.payload))
      sent++
    }
    if (clientKey !== null) messages.presence.delivered(clientKey, sent)
  }

  async function followChannel(access: MessageAccess): Promise<void> {
    const { close: stop } = await messages.follow({
      access,
      filter,
      authorize: async () => await gate.authorize(await opening.credentials(), path, 'subscribe'),
      deliver,
      onEnd: (reason) => close(END_CODES[reason].code, END_CODES[reason].reason),
    })
    if (socket.readyState !== socket.OPEN) return stop()
    stopFollowing = stop
    socket.once('close', stop)
    if (clientKey === null) return
    messages.presence.subscribed(clientKey, 'ws')
    socket.once('close', () => messages.presence.unsubscribed(clientKey, 'ws'))
  }

  const pings = setInterval(() => {
    if (!isAlive) socket.terminate()
    isAlive = false
    if (socket.readyState === socket.OPEN) socket.ping()
  }, PING_MS)
  socket.on('pong', () => (isAlive = true))
  socket.on('error', () => undefined)
  socket.once('close', () => clearInterval(pings))
  socket.on('message', (data: RawData, isBinary: boolean) => {
    isAlive = true
    take(bytesOf(data), isBinary)
  })
  if (clientKey !== null) {
    messages.presence.online(clientKey, 'ws')
    socket.once('close', () => messages.presence.offline(clientKey, 'ws'))
  }
  if (subscribe !== undefined) followChannel(subscribe).catch(closeFor)
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve))
}

function bytesOf(data: RawData): Buffer {
  if (Buffer.isBuffer(data)) return data
  return Array.isArray(data) ? Buffer.concat(data) : Buffer.from(data)
}

/** JSON and text travel as text frames, everything else as it is. */
function isText(contentType: string, payload: Buffer): boolean {
  return (contentType.endsWith('json') || contentType === TEXT_PLAIN) && isUtf8(payload)
}
