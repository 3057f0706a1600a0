/** The sources that a stream can subscribe to. Each source is the stream that exists for it alone, with another writer. */
import { formatPlace, takenJson } from '#api/consumers/index.ts'
import type { DeliveryService } from '#api/consumers/index.ts'
import type { MessageCredentials, MessageGate } from '#api/devices/index.ts'
import type { DomainAccess, EventsService, UserPrincipal } from '#api/identity/index.ts'
import { eventData } from '#api/identity/index.ts'
import { formatToken, liveFilter, messageJson } from '#api/messages/index.ts'
import type { Messages } from '#api/messages/index.ts'
import { formatPosition } from '#core/changelog/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { TaskEvent, TaskEventFanOut } from '#queues/index.ts'
import { taskEventId } from '#queues/index.ts'
import type { Ack, Nack, Subscribe } from './schema.ts'

/** The receiver of the events of a subscription. */
export type Sink = {
  event(position: string, event: string, data: string): void
  /** Everything before the position was delivered, or cannot be read. */
  position(position: string): void
  gap(message: string): void
  end(reason: SourceEnd): void
  drained(): Promise<void>
  isEnded(): boolean
}

export type SourceEnd = 'slow_reader' | 'behind' | 'unauthenticated' | 'forbidden' | 'stopping' | 'closed'

export type Subscription = {
  readonly keptBytes: number
  /** Only subscriptions to a consumer have it. It acknowledges messages or puts them back, and returns their number. */
  answer?: (frame: Ack | Nack) => Promise<number>
  close(): void
}

/** The caller of a stream, whose credentials are checked again whenever these are called. */
export type StreamCaller = {
  principal(): Promise<UserPrincipal>
  enter(): Promise<DomainAccess>
}

export type SourcesDeps = {
  events: Pick<EventsService, 'open'>
  messages: Pick<Messages, 'follow' | 'position'>
  gate: Pick<MessageGate, 'authorize'>
  tasks: Pick<TaskEventFanOut, 'follow'>
  consumers: Pick<DeliveryService, 'requireTaking' | 'follow' | 'ack' | 'nack'>
}

/** The interval at which the rights to see tasks and workers are checked while there are events of them. */
const TASK_RIGHTS_MS = 300

/** Messages that a subscription to a consumer takes at a time. */
const CONSUMER_STEP = 100

export class Sources {
  readonly #events: Pick<EventsService, 'open'>
  readonly #messages: Pick<Messages, 'follow' | 'position'>
  readonly #gate: Pick<MessageGate, 'authorize'>
  readonly #tasks: Pick<TaskEventFanOut, 'follow'>
  readonly #consumers: Pick<DeliveryService, 'requireTaking' | 'follow' | 'ack' | 'nack'>

  constructor({ events, messages, gate, tasks, consumers }: SourcesDeps) {
    this.#events = events
    this.#messages = messages
    this.#gate = gate
    this.#tasks = tasks
    this.#consumers = consumers
  }

  /** Begins to deliver. Throws `malformed`, `forbidden`, `not_found`, `unavailable`, `timeout`. */
  open(caller: StreamCaller, wanted: Subscribe, sink: Sink): Promise<Subscription> {
    switch (wanted.source) {
      case 'events':
        return this.#openEvents(caller, wanted, sink)
      case 'messages':
        return this.#openMessages(caller, wanted, sink)
      case 'tasks':
        return this.#openTasks(caller, wanted, sink)
      case 'consumer':
        return this.#openConsumer(caller, wanted, sink)
    }
  }

  async #openEvents(caller: StreamCaller, { position }: Subscribe, sink: Sink): Promise<Subscription> {
    const { domainId } = await caller.enter()
    const principal = await caller.principal()
    const source = await this.#events.open({ principal, authenticate: caller.principal }, domainId, position)
    const { close } = await source.begin({
      record: (record, attributes) =>
        sink.event(formatPosition(record.position), record.operation, eventData(record, attributes)),
      position: (at) => sink.position(at),
      gap: (message) => sink.gap(message),
      end: (reason) => sink.end(reason),
      drained: () => sink.drained(),
    })
    return {
      get keptBytes() {
        return source.keptBytes()
      },
      close,
    }
  }

  async #openMessages(caller: StreamCaller, wanted: Subscribe, sink: Sink): Promise<Subscription> {
    const { channel = '', subtopic, without, position } = wanted
    const { domainId } = await caller.enter()
    const authorize = async () => {
      const credentials: MessageCredentials = { kind: 'user', principal: await caller.principal() }
      return await this.#gate.authorize(credentials, { domain: domainId, channel }, 'subscribe')
    }
    const filter = liveFilter({ subtopic, without: without?.join(',') }, '#')
    const access = await authorize()
    const { close } = await this.#messages.follow(
      {
        access,
        ...filter,
        authorize,
        deliver: (deliveries) => {
          for (const { message, token } of deliveries) sink.event(formatToken(token), 'message', messageJson(message))
        },
        onEnd: (reason) => sink.end(reason),
        drained: () => sink.drained(),
      },
      position === '' ? undefined : position,
    )
    const at = position ?? this.#messages.position
    if (at !== undefined) sink.position(at)
    return { keptBytes: 0, close }
  }

  async #openTasks(caller: StreamCaller, { position }: Subscribe, sink: Sink): Promise<Subscription> {
    const rights = async () => {
      const domain = await caller.enter()
      const found = {
        key: domain.domainKey,
        tasks: domain.can('task_read'),
        workers: domain.can('worker_read'),
      }
      if (found.tasks || found.workers) return found
      throw new ServiceError(
        'forbidden',
        'failed to perform authorization: needs task_read or worker_read in the domain',
      )
    }
    let seen = await rights()
    const checking = setInterval(() => {
      rights().then(
        (found) => (seen = found),
        (error: unknown) => {
          if (error instanceof ServiceError && error.kind === 'forbidden') sink.end('forbidden')
        },
      )
    }, TASK_RIGHTS_MS)
    try {
      const following = await this.#tasks.follow(
        {
          sees: ({ kind, domainKey }) =>
            kind === 'worker'
              ? seen.workers && (domainKey === null || domainKey === seen.key)
              : seen.tasks && domainKey === seen.key,
          deliver: (event) => sink.event(taskEventId(event), event.kind, taskEventJson(event)),
          gap: () => sink.gap('events after this position are no longer stored'),
          drained: () => sink.drained(),
          isEnded: () => sink.isEnded(),
          stop: () => sink.end('stopping'),
        },
        position === '' ? undefined : position,
      )
      sink.position(following.position)
      return {
        keptBytes: 0,
        close() {
          clearInterval(checking)
          following.close()
        },
      }
    } catch (error) {
      clearInterval(checking)
      throw error
    }
  }

  async #openConsumer(caller: StreamCaller, { consumer = '' }: Subscribe, sink: Sink): Promise<Subscription> {
    const { domainId } = await caller.enter()
    const at = { domainId, nameOrId: consumer }
    const gone = new AbortController()
    const taker = { principal: () => caller.principal(), at, limit: CONSUMER_STEP, signal: gone.signal }
    await this.#consumers.requireTaking(taker)
    const following = this.#consumers.follow(taker, async (taken) => {
      for (const one of taken) sink.event(formatPlace(one.place), 'message', takenJson(one))
      await sink.drained()
    })
    following.then(
      () => sink.end('stopping'),
      (error: unknown) => {
        const kind = kindOf(error)
        if (!gone.signal.aborted)
          sink.end(
            kind === 'unauthenticated' ? kind : kind === 'forbidden' || kind === 'not_found' ? 'forbidden' : 'behind',
          )
      },
    )
    return {
      keptBytes: 0,
      answer: async (frame) => {
        const principal = await caller.principal()
        return frame.type === 'ack'
          ? await this.#consumers.ack(principal, at, frame.positions)
          : await this.#consumers.nack(principal, at, frame)
      },
      close: () => gone.abort(),
    }
  }
}

/** The text of an event with many followers, made once. */
const texts = new WeakMap<TaskEvent, string>()

function taskEventJson(event: TaskEvent): string {
  let text = texts.get(event)
  if (text === undefined) texts.set(event, (text = JSON.stringify(event.data)))
  return text
}
