/** One connection to the stream of a domain: its caller, and its subscriptions, which change while it is open. */
import type { AccessPolicy, DomainAccess, Logins, Origin, PageLogins, UserPrincipal } from '#api/identity/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import { newId } from '#core/ids.ts'
import type { AccessWatch, FrameRequest, FrameSession, FrameSocket } from '#core/streams/index.ts'
import { monotonicMs } from '#core/time.ts'
import { errorFrame, eventFrame, idOf, parseFrame } from './frames.ts'
import type { ClientFrame } from './frames.ts'
import type { Ack, Nack, Subscribe } from './schema.ts'
import type { Sink, SourceEnd, Sources, Subscription } from './sources.ts'

/** The subscriptions of one connection. */
export const MAX_SUBSCRIPTIONS = 64
/** Checks of the credentials of one connection share an answer of this age, however many subscriptions it has. */
const CHECKED_MS = 200

/** Close codes (RFC 6455 section 7.4.1 and its registry). */
const CLOSE = { policyViolation: 1008, tryAgainLater: 1013, goingAway: 1001 } as const

const END_MESSAGES: Readonly<Record<Exclude<SourceEnd, 'closed'>, string>> = {
  slow_reader: 'events were not read fast enough; connect again with the last positions',
  behind: 'the subscription has fallen behind; subscribe again with its last position',
  unauthenticated: 'the token has expired or was revoked',
  forbidden: 'you are no longer allowed to read this',
  stopping: 'the server is stopping; connect again with the last positions',
}

export type StreamDeps = {
  access: Pick<AccessPolicy, 'enter'>
  tokens: Pick<Logins, 'authenticate'>
  pages: PageLogins
  sources: Sources
  watch: AccessWatch
  logger: { warn(context: object, message: string): void }
}

type Credential = () => Promise<UserPrincipal>

/** `subscription` is undefined while it begins. */
type Open = { subscription: Subscription | undefined; isEnded: boolean }

export class StreamSession implements FrameSession {
  readonly #deps: StreamDeps
  readonly #domain: string
  readonly #request: FrameRequest
  readonly #socket: FrameSocket
  readonly #open = new Map<string, Open>()
  #credential: Credential | undefined
  #userKey: number | undefined
  #checked: { principal: Promise<UserPrincipal>; atMs: number } | undefined
  #unwatch: (() => void) | undefined
  #isClosed = false

  constructor(deps: StreamDeps, domain: string, request: FrameRequest, socket: FrameSocket) {
    this.#deps = deps
    this.#domain = domain
    this.#request = request
    this.#socket = socket
  }

  get keptBytes(): number {
    return [...this.#open.values()].reduce((sum, { subscription }) => sum + (subscription?.keptBytes ?? 0), 0)
  }

  async take(text: string): Promise<void> {
    try {
      const frame = parseFrame(text)
      if (frame.type === 'authenticate') return await this.#authenticate(this.#withToken(frame.token))
      if (this.#credential === undefined) await this.#authenticate(this.#withSession())
      if (!this.#isClosed) await this.#handle(frame)
    } catch (error) {
      if (this.#isClosed) return
      if (kindOf(error) === 'internal') this.#deps.logger.warn({ err: error }, 'failed to handle a frame of a stream')
      this.#socket.send(errorFrame(idOf(text), error))
      if (this.#credential === undefined) this.#close(closeCodeOf(error), 'the first frame must authenticate')
    }
  }

  closed(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#unwatch?.()
    for (const id of this.#open.keys()) this.#drop(id)
  }

  #withToken(token: string): Credential {
    const origin = this.#origin()
    return () => this.#deps.tokens.authenticate(token, origin)
  }

  /** The session of the console, without a frame that authenticates. */
  #withSession(): Credential {
    const { pages } = this.#deps
    const { headers } = this.#request
    if (pages.hasSession(headers)) return pages.open(headers, this.#origin())
    throw new ServiceError(
      'unauthenticated',
      'failed to perform authentication: send {"type":"authenticate","token":"…"} first',
    )
  }

  #origin(): Origin {
    const userAgent = this.#request.headers['user-agent']
    return {
      address: this.#request.address,
      requestId: newId(),
      ...(userAgent === undefined ? {} : { userAgent: userAgent.slice(0, 256) }),
      isReading: true,
    }
  }

  /** The first credentials of the connection, or later ones of the same user. */
  async #authenticate(credential: Credential): Promise<void> {
    const principal = await credential()
    if (this.#userKey !== undefined && principal.key !== this.#userKey)
      throw new ServiceError('forbidden', 'the token is of another user: open another connection')
    const domain = await this.#deps.access.enter(principal, this.#domain)
    if (this.#isClosed) return
    if (this.#userKey === undefined) {
      this.#socket.admit({ user: principal.key, domain: domain.domainId })
      this.#userKey = principal.key
      this.#unwatch = this.#deps.watch.add({
        authorize: () => this.#enter(),
        lost: (kind) => this.#end(kind === 'unauthenticated' ? kind : 'forbidden'),
      })
    }
    this.#credential = credential
    this.#checked = undefined
    const { domainId } = domain
    this.#socket.send(JSON.stringify({ type: 'authenticated', user_id: principal.id, domain_id: domainId }))
  }

  async #principal(): Promise<UserPrincipal> {
    const nowMs = monotonicMs()
    if (this.#checked === undefined || nowMs - this.#checked.atMs > CHECKED_MS) {
      if (this.#credential === undefined) throw new ServiceError('unauthenticated', END_MESSAGES.unauthenticated)
      this.#checked = { principal: this.#credential(), atMs: nowMs }
    }
    return await this.#checked.principal
  }

  async #enter(): Promise<DomainAccess> {
    return await this.#deps.access.enter(await this.#principal(), this.#domain)
  }

  async #handle(frame: Exclude<ClientFrame, { type: 'authenticate' }>): Promise<void> {
    if (frame.type === 'subscribe') return await this.#subscribe(frame)
    if (frame.type === 'ack' || frame.type === 'nack') return await this.#answer(frame)
    if (!this.#open.has(frame.id)) throw new ServiceError('not_found', 'no such subscription')
    this.#drop(frame.id)
    this.#socket.send(JSON.stringify({ type: 'unsubscribed', id: frame.id }))
  }

  async #answer(frame: Ack | Nack): Promise<void> {
    const { id } = frame
    const answer = this.#open.get(id)?.subscription?.answer
    if (answer === undefined) throw new ServiceError('not_found', 'no such subscription to a consumer')
    const count = await answer(frame)
    this.#socket.send(JSON.stringify({ type: `${frame.type}ed`, id, count }))
  }

  async #subscribe(wanted: Subscribe): Promise<void> {
    const { id } = wanted
    if (this.#open.has(id)) throw new ServiceError('conflict', 'a subscription has this id: unsubscribe it first')
    if (this.#open.size >= MAX_SUBSCRIPTIONS)
      throw new ServiceError('rate_limited', `one connection may have at most ${MAX_SUBSCRIPTIONS} subscriptions`)
    const open: Open = { subscription: undefined, isEnded: false }
    this.#open.set(id, open)
    try {
      const caller = { principal: () => this.#principal(), enter: () => this.#enter() }
      open.subscription = await this.#deps.sources.open(caller, wanted, this.#sinkOf(id, open))
    } catch (error) {
      if (this.#open.get(id) === open) this.#open.delete(id)
      open.isEnded = true
      throw error
    }
    // It may have ended meanwhile.
    if (open.isEnded) return open.subscription.close()
    this.#socket.send(JSON.stringify({ type: 'subscribed', id }))
  }

  #sinkOf(id: string, open: Open): Sink {
    const send = (text: string) => {
      if (!open.isEnded) this.#socket.send(text)
    }
    return {
      event: (position, event, data) => send(eventFrame(id, position, event, data)),
      position: (position) => send(JSON.stringify({ type: 'position', id, position })),
      gap: (message) => send(JSON.stringify({ type: 'gap', id, message })),
      end: (reason) => this.#ended(id, open, reason),
      drained: () => this.#socket.drained(),
      isEnded: () => open.isEnded,
    }
  }

  /** A source ended its subscription; the end of the credentials, of the reader or of the server ends the connection. */
  #ended(id: string, open: Open, reason: SourceEnd): void {
    if (open.isEnded || reason === 'closed') return
    if (reason !== 'forbidden' && reason !== 'behind') return this.#end(reason)
    this.#drop(id)
    const kind = reason === 'forbidden' ? 'forbidden' : 'unavailable'
    this.#socket.send(errorFrame(id, new ServiceError(kind, END_MESSAGES[reason])))
  }

  #drop(id: string): void {
    const open = this.#open.get(id)
    this.#open.delete(id)
    if (open === undefined || open.isEnded) return
    open.isEnded = true
    open.subscription?.close()
  }

  #end(reason: Exclude<SourceEnd, 'closed'>): void {
    const message = END_MESSAGES[reason]
    if (reason === 'unauthenticated' || reason === 'forbidden') {
      this.#socket.send(errorFrame(undefined, new ServiceError(reason, message)))
      return this.#close(CLOSE.policyViolation, message)
    }
    this.#close(reason === 'stopping' ? CLOSE.goingAway : CLOSE.tryAgainLater, message)
  }

  #close(code: number, reason: string): void {
    this.closed()
    this.#socket.close(code, reason)
  }
}

function closeCodeOf(error: unknown): number {
  const kind = kindOf(error)
  return kind === 'rate_limited' || kind === 'unavailable' || kind === 'timeout'
    ? CLOSE.tryAgainLater
    : CLOSE.policyViolation
}
