/**
 * One end of the IPC link between a supervisor and one of its processes: hints, notifications, and requests with
 * responses. Nothing waits for a slow peer: a hint above the bound is dropped, and a request fails at its deadline.
 */

/** The connection of Node between a parent and a child process (IPC). */
export type LinkEnd = {
  /** Calls back when the message is written, or with the error. */
  send(message: unknown, written: (error: Error | null) => void): void
  listen(handler: (message: unknown) => void): void
  readonly isOpen: boolean
}

export type LinkHandlers = {
  onHint(topic: string, payload: Uint8Array): void
  /** Receives a notification of the peer, which expects no response. */
  onNotification(what: string, body: unknown): void
  /** Answers a request of the peer. When it throws, the peer receives `undefined`. */
  respond(what: string, body: unknown): Promise<unknown>
}

type Message =
  | { kind: 'hint'; topic: string; payload: Uint8Array }
  | { kind: 'notification'; what: string; body: unknown }
  | { kind: 'request'; id: number; what: string; body: unknown }
  | { kind: 'response'; id: number; body: unknown }

/** Bytes of hints that wait to be written to one peer. Further hints are dropped; the peer reads the changelog. */
export const MAX_WAITING_HINT_BYTES = 4 * 1024 * 1024
/** Bytes that a hint takes in addition to its payload. */
const HINT_OVERHEAD_BYTES = 200
/** Requests to one peer that wait for their responses; further ones fail at once. */
const MAX_PENDING_REQUESTS = 1000

export class Link {
  readonly #end: LinkEnd
  readonly #pending = new Map<number, (body: unknown) => void>()
  #nextId = 0
  #waitingBytes = 0

  constructor(end: LinkEnd, handlers: LinkHandlers) {
    this.#end = end
    end.listen((message) => this.#take(message as Message, handlers))
  }

  get isOpen(): boolean {
    return this.#end.isOpen
  }

  /** False when the hint was dropped. */
  hint(topic: string, payload: Uint8Array): boolean {
    const bytes = payload.byteLength + HINT_OVERHEAD_BYTES
    if (!this.#end.isOpen || this.#waitingBytes + bytes > MAX_WAITING_HINT_BYTES) return false
    this.#waitingBytes += bytes
    this.#send({ kind: 'hint', topic, payload }, () => (this.#waitingBytes -= bytes))
    return true
  }

  notify(what: string, body: unknown): void {
    this.#send({ kind: 'notification', what, body })
  }

  /** Resolves to undefined when there is no response in time. Never rejects. */
  async request<T>(what: string, body: unknown, deadlineMs: number): Promise<T | undefined> {
    if (!this.#end.isOpen || this.#pending.size >= MAX_PENDING_REQUESTS) return undefined
    const id = this.#nextId++
    return await new Promise((resolve) => {
      const settle = (response: unknown) => {
        clearTimeout(timer)
        this.#pending.delete(id)
        resolve(response as T | undefined)
      }
      const timer = setTimeout(() => settle(undefined), deadlineMs)
      this.#pending.set(id, settle)
      this.#send({ kind: 'request', id, what, body }, (error) => {
        if (error !== null) settle(undefined)
      })
    })
  }

  /** Ends the wait for all responses: the peer is gone. */
  close(): void {
    for (const settle of this.#pending.values()) settle(undefined)
  }

  #send(message: Message, written: (error: Error | null) => void = () => undefined): void {
    if (this.#end.isOpen) this.#end.send(message, written)
    else written(new Error('the link is closed'))
  }

  #take(message: Message, handlers: LinkHandlers): void {
    switch (message.kind) {
      case 'hint':
        return handlers.onHint(message.topic, message.payload)
      case 'notification':
        return handlers.onNotification(message.what, message.body)
      case 'response':
        return this.#pending.get(message.id)?.(message.body)
      case 'request': {
        const { id, what, body } = message
        // oxlint-disable-next-line promise/prefer-await-to-then -- the response is sent without waiting
        handlers.respond(what, body).then(
          (response) => this.#send({ kind: 'response', id, body: response }),
          () => this.#send({ kind: 'response', id, body: undefined }),
        )
      }
    }
  }
}
