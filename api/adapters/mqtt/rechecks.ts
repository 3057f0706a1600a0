/** Rechecks connections when an entity changes on which their rights depend; a revocation is in force within a second. */
import { ServiceError } from '#core/errors/index.ts'
import type { Connection } from './connection.ts'
import type { MqttBackend } from './backend.ts'
import { REASON } from './packets/reason-codes.ts'
import type { Session } from './session.ts'

/** Changes within this time are checked together. */
const RECHECK_AFTER_MS = 50
/** The number of connections that are checked concurrently. */
const RECHECKED_AT_ONCE = 50

export class Rechecks {
  readonly #backend: MqttBackend
  readonly #connections: Iterable<Connection>
  /** Keys of entities that changed since the last check. */
  #changed: Set<number> | 'all' = new Set()
  #rechecking: NodeJS.Timeout | undefined
  #isStopped = false

  constructor(backend: MqttBackend, connections: Iterable<Connection>) {
    this.#backend = backend
    this.#connections = connections
  }

  /** Undefined: any of them may have changed. */
  changed(entityKeys: readonly number[] | undefined): void {
    if (entityKeys === undefined) this.#changed = 'all'
    else if (this.#changed !== 'all') for (const key of entityKeys) this.#changed.add(key)
    this.#rechecking ??= setTimeout(() => void this.#recheckAll(), RECHECK_AFTER_MS)
  }

  stop(): void {
    this.#isStopped = true
    clearTimeout(this.#rechecking)
  }

  get #hasChanges(): boolean {
    return this.#changed === 'all' || this.#changed.size > 0
  }

  /** Checks all changes since the last check together: a change may concern a few connections, or all. */
  async #recheckAll(): Promise<void> {
    const keys = this.#changed
    this.#changed = new Set()
    const concerned = [...this.#connections].filter(
      ({ session }) => session !== undefined && isConcerned(session, keys),
    )
    for (let first = 0; first < concerned.length; first += RECHECKED_AT_ONCE) {
      const some = concerned.slice(first, first + RECHECKED_AT_ONCE)
      await Promise.all(some.map((connection) => this.#recheck(connection, connection.session as Session)))
    }
    this.#rechecking = undefined
    if (!this.#isStopped && this.#hasChanges)
      this.#rechecking = setTimeout(() => void this.#recheckAll(), RECHECK_AFTER_MS)
  }

  async #recheck(connection: Connection, session: Session): Promise<void> {
    try {
      await this.#backend.recheck(session)
      const { certificate, recertify } = connection
      // Its certificate may have been revoked meanwhile.
      const isCertified = certificate !== undefined && session.identity.credentials === certificate
      if (isCertified && (await recertify?.()) === undefined)
        connection.close(REASON.notAuthorized, 'the certificate is not valid any more')
    } catch (error) {
      const isGone = error instanceof ServiceError && ['unauthenticated', 'forbidden'].includes(error.kind)
      if (isGone) connection.close(REASON.notAuthorized, 'no longer allowed')
    }
  }
}

function isConcerned({ identity, subscriptions }: Session, keys: ReadonlySet<number> | 'all'): boolean {
  const { ownerKey, domainKey } = identity
  if (keys === 'all' || ownerKey === undefined || keys.has(ownerKey)) return true
  if (domainKey !== undefined && keys.has(domainKey)) return true
  for (const { streamKey } of subscriptions.values()) if (keys.has(streamKey)) return true
  return false
}
