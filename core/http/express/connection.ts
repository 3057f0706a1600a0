/**
 * A connection as long as nothing but requests for the express lane come over it. Its bytes are read here, without Node's HTTP server and its
 * objects per request, which cost as much as all the rest of a message. With the first request of another kind the
 * connection, and what it has sent, becomes that server's for good.
 */
import type { Socket } from 'node:net'
import { STATUS_CODES } from '../../node-http.ts'
import { monotonicMs } from '../../time.ts'
import { answerUnreadable } from '../unreadable.ts'
import { readHead } from './head.ts'
import type { ExpressAnswer, ExpressLane, ExpressTaken } from './lane.ts'
import { expressLength, perform } from './lane.ts'

/** Requests of one connection that are not answered; beyond, nothing is read until one is. */
const MAX_UNANSWERED = 16

export type ExpressTimes = {
  /** A request must be whole by then; so must the first after the connection was opened. */
  readonly requestDeadlineMs: number
  /** A connection on which nothing happens is closed after this. */
  readonly keepAliveMs: number
  /** How often connections are looked through. */
  readonly checkMs: number
}

export type ExpressConnections = {
  /** Serves a new connection; `leave` makes it Node's, which then reads from it as if nothing had been read. */
  open(socket: Socket, leave: () => void): void
  /** From now on each answer is the last of its connection. */
  stop(): void
  closeIdle(): void
  closeAll(): void
}

/** What all connections share. */
type House = {
  readonly lane: ExpressLane
  readonly times: ExpressTimes
  readonly all: Set<Connection>
  isStopping: boolean
}

export function createExpressConnections(lane: ExpressLane, times: ExpressTimes): ExpressConnections {
  const house: House = { lane, times, all: new Set(), isStopping: false }
  const check = setInterval(() => {
    const nowMs = monotonicMs()
    for (const connection of house.all) connection.check(nowMs)
  }, times.checkMs)
  check.unref()
  return {
    open(socket, leave) {
      house.all.add(new Connection(house, socket, leave))
    },
    stop() {
      house.isStopping = true
      clearInterval(check)
    },
    closeIdle() {
      for (const connection of house.all) connection.closeIfIdle()
    },
    closeAll() {
      for (const connection of house.all) connection.destroy()
    },
  }
}

/** A request whose head was read and whose body ends at `end` of what has come. */
type Coming = { taken: ExpressTaken; bodyStart: number; end: number }

class Connection {
  readonly #house: House
  readonly #socket: Socket
  readonly #leave: () => void
  /** What came and is no whole request yet; joined only when something can be done with it. */
  #pieces: Buffer[] = []
  #length = 0
  #coming: Coming | undefined
  /** In the order of their requests: the answer, or undefined as long as there is none. */
  readonly #answers: { text: string | undefined }[] = []
  /** It is being found out who sends the present head; nothing is read meanwhile. */
  #isLearning = false
  #isLeaving = false
  #hasEnded = false
  #hasServed = false
  #sinceMs = monotonicMs()

  constructor(house: House, socket: Socket, leave: () => void) {
    this.#house = house
    this.#socket = socket
    this.#leave = leave
    socket.on('data', this.#onData)
    socket.on('end', this.#onEnd)
    socket.on('close', this.#onClose)
    socket.on('drain', this.#onDrain)
    socket.on('error', ignore)
  }

  readonly #onData = (chunk: Buffer) => {
    if (this.#length === 0) this.#sinceMs = monotonicMs()
    this.#pieces.push(chunk)
    this.#length += chunk.length
    this.#advance()
  }

  readonly #onEnd = () => {
    this.#hasEnded = true
    if (this.#answers.length === 0) this.#finish()
  }

  readonly #onClose = () => {
    this.#house.all.delete(this)
  }

  readonly #onDrain = () => this.#goOn()

  check(nowMs: number): void {
    if (this.#answers.length > 0 || this.#isLearning) return
    const idleMs = nowMs - this.#sinceMs
    const { requestDeadlineMs, keepAliveMs } = this.#house.times
    if (this.#hasServed && this.#length === 0) {
      if (idleMs > keepAliveMs) this.destroy()
    } else if (idleMs > requestDeadlineMs) {
      this.#refuse('ERR_HTTP_REQUEST_TIMEOUT')
    }
  }

  closeIfIdle(): void {
    if (this.#answers.length === 0 && this.#length === 0 && !this.#isLearning) this.#socket.destroySoon()
  }

  destroy(): void {
    this.#socket.destroy()
  }

  /** What has come, in one piece. */
  #joined(): Buffer {
    if (this.#pieces.length > 1) this.#pieces = [Buffer.concat(this.#pieces, this.#length)]
    return this.#pieces[0] as Buffer
  }

  #advance(): void {
    while (this.#length > 0 && !this.#isLeaving && !this.#isLearning) {
      if (this.#isFull()) {
        this.#socket.pause()
        return
      }
      this.#coming ??= this.#readComing()
      const coming = this.#coming
      if (coming === undefined || this.#length < coming.end) return
      const bytes = this.#joined()
      this.#coming = undefined
      this.#length -= coming.end
      this.#pieces = this.#length === 0 ? [] : [bytes.subarray(coming.end)]
      this.#sinceMs = monotonicMs()
      this.#perform(coming.taken, bytes.subarray(coming.bodyStart, coming.end))
    }
  }

  /** The next request by its head; undefined: more must come, or it is not one for the lane. */
  #readComing(): Coming | undefined {
    const { lane } = this.#house
    const reading = readHead(this.#joined())
    if (reading.kind === 'partial') return undefined
    if (reading.kind === 'foreign') return this.#leaveSoon()
    const { head, bodyStart } = reading
    const length = expressLength(lane, head)
    if (length === undefined) return this.#leaveSoon()
    const taken = lane.route.take(head)
    const comingOf = (found: ExpressTaken): Coming => ({ taken: found, bodyStart, end: bodyStart + length })
    if (taken !== undefined) return comingOf(taken)
    const learned = lane.route.learn(head)
    if (learned === undefined) return this.#leaveSoon()
    this.#isLearning = true
    this.#socket.pause()
    learned.then(
      (found) => this.#learn(comingOf(found)),
      () => this.#learn(undefined),
    )
    return undefined
  }

  /** What was found out about the present head; undefined: its caller is to be refused, which the route does. */
  #learn(coming: Coming | undefined): void {
    this.#isLearning = false
    this.#coming = coming
    if (coming === undefined) this.#leaveSoon()
    else this.#goOn()
  }

  #perform(taken: ExpressTaken, body: Buffer): void {
    const place: { text: string | undefined } = { text: undefined }
    this.#answers.push(place)
    perform(this.#house.lane, taken, body, (answer) => {
      place.text = this.#textOf(answer, this.#house.isStopping && this.#answers.at(-1) === place)
      if (this.#answers[0] === place) this.#flush()
    })
  }

  #textOf(answer: ExpressAnswer, isLast: boolean): string {
    let text = `HTTP/1.1 ${answer.status} ${STATUS_CODES[answer.status]}\r\n`
    for (const name in answer.headers) text += `${name}: ${answer.headers[name]}\r\n`
    text += `Date: ${httpDate()}\r\n`
    text += isLast
      ? 'Connection: close\r\n\r\n'
      : `Connection: keep-alive\r\nKeep-Alive: timeout=${Math.floor(this.#house.times.keepAliveMs / 1000)}\r\n\r\n`
    return text + answer.body
  }

  /** Sends the answers whose turn it is. */
  #flush(): void {
    let text = ''
    while (this.#answers[0]?.text !== undefined) text += this.#answers.shift()?.text ?? ''
    this.#socket.write(text)
    this.#hasServed = true
    this.#sinceMs = monotonicMs()
    if (this.#answers.length === 0) {
      if (this.#house.isStopping) this.#socket.destroySoon()
      else if (this.#isLeaving) this.#leaveNow()
      else if (this.#hasEnded) this.#finish()
    }
    if (this.#socket.isPaused()) this.#goOn()
  }

  /** The other side has ended, and has all its answers; half a request is told so. */
  #finish(): void {
    if (this.#length > 0) this.#refuse('HPE_INVALID_EOF_STATE')
    else this.#socket.destroySoon()
  }

  /** As Node's server refuses, by one of its codes. */
  #refuse(code: string): void {
    this.#forget()
    this.#socket.on('error', ignore)
    answerUnreadable(Object.assign(new Error('the request is not whole'), { code }), this.#socket)
  }

  /** Takes up reading where it was stopped. */
  #goOn(): void {
    if (this.#socket.destroyed || this.#isLeaving) return
    this.#advance()
    if (!this.#isLeaving && !this.#isLearning && !this.#isFull()) this.#socket.resume()
  }

  /** The other side has to take answers before it is read from again. */
  #isFull(): boolean {
    return this.#answers.length >= MAX_UNANSWERED || this.#socket.writableNeedDrain
  }

  #leaveSoon(): undefined {
    this.#isLeaving = true
    this.#socket.pause()
    if (this.#answers.length === 0) this.#leaveNow()
  }

  #leaveNow(): void {
    this.#forget()
    if (this.#socket.destroyed) return
    // Read again by the next one; nothing is read in between, because the socket flows only after this turn.
    if (this.#length > 0) this.#socket.unshift(this.#joined())
    this.#leave()
    process.nextTick(() => this.#socket.resume())
  }

  #forget(): void {
    this.#house.all.delete(this)
    this.#socket.off('data', this.#onData)
    this.#socket.off('end', this.#onEnd)
    this.#socket.off('close', this.#onClose)
    this.#socket.off('drain', this.#onDrain)
    this.#socket.off('error', ignore)
  }
}

function ignore(): void {
  // A broken connection closes; whoever works for it finds nobody to answer.
}

let dateText = ''
let dateUntilMs = 0

/** RFC 9110 section 5.6.7, made once a second. */
function httpDate(): string {
  const nowMs = Date.now()
  if (nowMs >= dateUntilMs || nowMs < dateUntilMs - 1000) {
    dateText = new Date(nowMs).toUTCString()
    dateUntilMs = nowMs - (nowMs % 1000) + 1000
  }
  return dateText
}
