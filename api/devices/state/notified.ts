/**
 * What subscribed devices are sent: the difference at once where there is one, then each change of it, on any node. The journal says which
 * documents changed; the newest row is what is sent, so a device that was slow or away gets the newest difference alone.
 */
import type { ChangeListener } from '#api/identity/index.ts'
import { GroupCommit } from '#core/database/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import type { DeviceSink, DeviceSubscription, ToDevice } from '../device-topics/index.ts'
import { isEmpty } from './document.ts'
import { findNotified } from './repository.ts'
import type { NotifiedState } from './repository.ts'

/** Clients of one look-up: those that connect while a statement runs are in the next one. */
const MAX_BATCH = 200
const MAX_QUEUED = 100_000
/** The delay before a look-up that failed is repeated, and before a connection without room is tried again. */
const AGAIN_MS = 1000

type Callbacks = Required<Pick<ToDevice, 'onAcknowledged' | 'onDropped'>>

/** `wants`: whether the subscription is about the document with this name. */
type Wanted = { wants: (name: string) => boolean; send: (state: NotifiedState, callbacks: Callbacks) => void }

/** One document, as the subscription last sent it. `isWaiting`: that is not acknowledged. */
type Notified = { version: number; isWaiting: boolean; isBehind: boolean }

class OpenSubscription {
  readonly #wanted: Wanted
  /** Reads the newest rows now, or after a delay. */
  readonly #refresh: { now: () => void; later: () => void }
  readonly #notified = new Map<string, Notified>()
  isOpen = true

  constructor(wanted: Wanted, refresh: { now: () => void; later: () => void }) {
    this.#wanted = wanted
    this.#refresh = refresh
  }

  /** The newest rows of the client. */
  take(states: readonly NotifiedState[]): void {
    for (const state of states) if (this.isOpen && this.#wanted.wants(state.name)) this.#take(state)
  }

  #take(state: NotifiedState): void {
    const { name, notifiedVersion, delta, version } = state
    const before = this.#notified.get(name)
    const notified = before ?? { version: 0, isWaiting: false, isBehind: false }
    // At first, the device is notified of a difference, whenever it arose. Then of each change, also of one that leaves none.
    const isNews = before === undefined ? !isEmpty(delta) : notifiedVersion > notified.version
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
    const next = () => {
      notified.isWaiting = false
      if (notified.isBehind && this.isOpen) this.#refresh.now()
    }
    this.#wanted.send(state, {
      onAcknowledged: next,
      onDropped: (reason) => {
        if (reason !== 'slow') return next()
        // The device does not know of it, and is told when there is room.
        if (before === undefined) this.#notified.delete(name)
        else notified.version = knownVersion
        notified.isWaiting = false
        if (this.isOpen) this.#refresh.later()
      },
    })
  }
}

export class NotifiedDevices {
  readonly #lookups: GroupCommit<number, readonly NotifiedState[]>
  readonly #logger: Logger
  readonly #byClient = new Map<number, Set<OpenSubscription>>()
  /** Clients whose rows are being read; `true`: again after that. */
  readonly #reading = new Map<number, boolean>()
  /** Clients whose rows are read after a delay. */
  readonly #again = new Map<number, NodeJS.Timeout>()

  constructor(db: Queryable, logger: Logger) {
    this.#logger = logger
    this.#lookups = new GroupCommit({
      name: 'the look-up of device states',
      item: 'the look-up of a device state',
      logger,
      maxItems: MAX_BATCH,
      maxQueuedItems: MAX_QUEUED,
      commit: async ({ items }) => {
        const found = new Map<number, NotifiedState[]>(items.map((key) => [key, []]))
        for (const state of await findNotified(db, [...found.keys()])) found.get(state.clientKey)?.push(state)
        return items.map((key) => found.get(key) ?? [])
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
      now: () => this.#refresh(clientKey),
      later: () => this.#refreshLater(clientKey),
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
      const states = await this.#lookups.submit(clientKey)
      for (const subscription of this.#byClient.get(clientKey) ?? []) subscription.take(states)
    } catch (error) {
      // Every subscription waits for the database then, and the database is reported elsewhere.
      if (kindOf(error) !== 'unavailable' && kindOf(error) !== 'timeout')
        this.#logger.warn({ err: error }, 'failed to read the state of a device; it is repeated')
      this.#refreshLater(clientKey)
    }
    const isAgain = this.#reading.get(clientKey) === true
    this.#reading.delete(clientKey)
    if (isAgain && this.#byClient.has(clientKey)) this.#refresh(clientKey)
  }
}
