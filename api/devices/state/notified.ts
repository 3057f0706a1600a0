/**
 * What subscribed devices are sent: the difference at once where there is one, then each change of it, on any node. The journal says which
 * documents changed; the newest row is what is sent, so a device that was slow or away gets the newest difference alone.
 */
import type { ChangeListener } from '#api/identity/index.ts'
import { GroupCommit } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { DeviceSink, DeviceSubscription, DropReason } from '../device-topics/index.ts'
import { isEmpty } from './document.ts'
import { findChanges, findNotified } from './repository.ts'
import type { DocumentKey, NotifiedState, StateChange } from './repository.ts'

/** Clients of one look-up: those that connect while a statement runs are in the next one. */
const MAX_BATCH = 200
/** Deltas that are read at once, of at most 64 KiB each. */
const MAX_DELTAS = 64
const MAX_QUEUED = 100_000
/** The delay before a look-up that failed is repeated, and before a connection without room is tried again. */
const AGAIN_MS = 1000

type Callbacks = { onAcknowledged: () => void; onDropped: (reason: DropReason) => void }

type Wanted = {
  /** Whether the subscription is about the document with this name. */
  wants: (name: string) => boolean
} & (
  | { send: (state: NotifiedState, callbacks: Callbacks) => void }
  /** The subscription reads by itself what it sends. */
  | { changed: (callbacks: Callbacks) => void }
)

/** One document, as the subscription last sent it. `isWaiting`: that is not acknowledged. */
type Notified = { version: number; isWaiting: boolean; isBehind: boolean }

type Reading = {
  /** Reads the changes of the client again, now or after a delay. */
  refresh: () => void
  refreshLater: () => void
  /** Undefined: the document was deleted. */
  delta: (change: StateChange) => Promise<NotifiedState | undefined>
  /** It is repeated. */
  failed: (error: unknown) => void
}

class OpenSubscription {
  readonly #wanted: Wanted
  readonly #reading: Reading
  readonly #notified = new Map<string, Notified>()
  isOpen = true

  constructor(wanted: Wanted, reading: Reading) {
    this.#wanted = wanted
    this.#reading = reading
  }

  /** The newest rows of the client. */
  take(changes: readonly StateChange[]): void {
    for (const change of changes) if (this.isOpen && this.#wanted.wants(change.name)) this.#take(change)
  }

  #take(change: StateChange): void {
    const { name, notifiedVersion, version } = change
    const before = this.#notified.get(name)
    const notified = before ?? { version: 0, isWaiting: false, isBehind: false }
    // At first, the device is notified of a difference, whenever it arose. Then of each change, also of one that leaves none.
    const isNews = before === undefined ? !change.isInSync : notifiedVersion > notified.version
    if (before === undefined) this.#notified.set(name, notified)
    if (!isNews) {
      notified.version = Math.max(notified.version, notifiedVersion)
      return
    }
    // The next one is read when this one is acknowledged, so that it is the newest then.
    if (notified.isWaiting) {
      notified.isBehind = true
      return
    }
    const knownVersion = notified.version
    notified.version = Math.max(version, notifiedVersion)
    notified.isWaiting = true
    notified.isBehind = false
    const onAcknowledged = () => {
      notified.isWaiting = false
      if (notified.isBehind && this.isOpen) this.#reading.refresh()
    }
    const onDropped = (reason: DropReason) => {
      if (reason !== 'slow') return onAcknowledged()
      // The device does not know of it, and is notified when there is room.
      if (before === undefined) this.#notified.delete(name)
      else notified.version = knownVersion
      notified.isWaiting = false
      if (this.isOpen) this.#reading.refreshLater()
    }
    const callbacks = { onAcknowledged, onDropped }
    const wanted = this.#wanted
    if ('changed' in wanted) return wanted.changed(callbacks)
    const { delta } = change
    if (delta !== null) return wanted.send({ ...change, delta }, callbacks)
    this.#reading.delta(change).then(
      (state) => {
        if (!this.isOpen) return
        // It was deleted meanwhile, or there is no difference any more.
        if (state === undefined || (before === undefined && isEmpty(state.delta))) return onAcknowledged()
        notified.version = Math.max(notified.version, state.version, state.notifiedVersion)
        wanted.send(state, callbacks)
      },
      (error: unknown) => {
        this.#reading.failed(error)
        onDropped('slow')
      },
    )
  }
}

const keyOf = ({ clientKey, name }: DocumentKey) => `${clientKey} ${name}`

export class NotifiedDevices {
  readonly #changes: GroupCommit<number, readonly StateChange[]>
  readonly #deltas: GroupCommit<DocumentKey, NotifiedState | undefined>
  readonly #logger: Logger
  readonly #byClient = new Map<number, Set<OpenSubscription>>()
  /** Clients whose rows are being read; `true`: again after that. */
  readonly #reading = new Map<number, boolean>()
  /** Clients whose rows are read after a delay. */
  readonly #again = new Map<number, NodeJS.Timeout>()

  constructor(db: Queryable, logger: Logger) {
    this.#logger = logger
    this.#changes = new GroupCommit({
      name: 'the look-up of device states',
      item: 'the look-up of a device state',
      logger,
      maxItems: MAX_BATCH,
      maxQueuedItems: MAX_QUEUED,
      commit: async ({ items }) => {
        const found = new Map<number, StateChange[]>(items.map((key) => [key, []]))
        for (const change of await findChanges(db, [...found.keys()])) found.get(change.clientKey)?.push(change)
        return items.map((key) => found.get(key) ?? [])
      },
    })
    this.#deltas = new GroupCommit({
      name: 'the look-up of what devices are notified of',
      item: 'the look-up of what a device is notified of',
      logger,
      maxItems: MAX_DELTAS,
      maxQueuedItems: MAX_QUEUED,
      commit: async ({ items }) => {
        const documents = new Map(items.map((item) => [keyOf(item), item]))
        const states = await findNotified(db, [...documents.values()])
        const found = new Map(states.map((state) => [keyOf(state), state]))
        return items.map((item) => found.get(keyOf(item)))
      },
    })
  }

  get size(): number {
    return this.#byClient.size
  }

  /** Changes of states of these clients. */
  readonly listener: ChangeListener = {
    invalidate: (clientKeys) => {
      for (const key of clientKeys) if (this.#byClient.has(key)) this.#refresh(key)
    },
    invalidateAll: () => {
      for (const key of this.#byClient.keys()) this.#refresh(key)
    },
  }

  subscribe({ device: { clientKey } }: Pick<DeviceSink, 'device'>, wanted: Wanted): DeviceSubscription {
    const subscription = new OpenSubscription(wanted, {
      refresh: () => this.#refresh(clientKey),
      refreshLater: () => this.#refreshLater(clientKey),
      delta: ({ name }) => this.#deltas.submit({ clientKey, name }),
      failed: (error) => this.#failed(error),
    })
    const ofClient = this.#byClient.get(clientKey) ?? new Set()
    ofClient.add(subscription)
    this.#byClient.set(clientKey, ofClient)
    // Rows that are read from now on contain every change that is not announced any more.
    this.#refresh(clientKey)
    return {
      close: () => {
        subscription.isOpen = false
        ofClient.delete(subscription)
        if (ofClient.size === 0 && this.#byClient.get(clientKey) === ofClient) this.#byClient.delete(clientKey)
      },
    }
  }

  stop(): void {
    this.#byClient.clear()
    for (const timer of this.#again.values()) clearTimeout(timer)
  }

  #refresh(clientKey: number): void {
    if (this.#reading.has(clientKey)) this.#reading.set(clientKey, true)
    else void this.#read(clientKey)
  }

  #refreshLater(clientKey: number): void {
    if (this.#again.has(clientKey)) return
    const timer = setTimeout(() => {
      this.#again.delete(clientKey)
      if (this.#byClient.has(clientKey)) this.#refresh(clientKey)
    }, AGAIN_MS)
    this.#again.set(clientKey, timer.unref())
  }

  async #read(clientKey: number): Promise<void> {
    this.#reading.set(clientKey, false)
    try {
      const changes = await this.#changes.submit(clientKey)
      for (const subscription of this.#byClient.get(clientKey) ?? []) subscription.take(changes)
    } catch (error) {
      this.#failed(error)
      this.#refreshLater(clientKey)
    }
    const isAgain = this.#reading.get(clientKey) === true
    this.#reading.delete(clientKey)
    if (isAgain && this.#byClient.has(clientKey)) this.#refresh(clientKey)
  }
  #failed(error: unknown): void {
    // Every subscription waits for the database then, and the database is reported elsewhere.
    if (kindOf(error) !== 'unavailable' && kindOf(error) !== 'timeout')
      this.#logger.warn({ err: error }, 'failed to read the state of a device; it is repeated')
  }
}
