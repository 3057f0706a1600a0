/**
 * The quotas `mqtt_connections`, `mqtt_sessions` and `mqtt_subscriptions` of domains (contract decision 76). What is used is counted in the
 * rows of sessions about once a second, for the domains with a quota whose clients connect or subscribe, plus what this process changed
 * since: several processes exceed a quota by what they admit in that time.
 */
import { DOMAIN_QUOTAS, DomainMeter } from '#api/identity/index.ts'
import type { Quotas } from '#api/identity/index.ts'
import type { Queryable } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { sql } from '#core/sql.ts'
import type { Sql } from '#core/sql.ts'
import { isUnexpired } from './session-limit.ts'

export const SESSION_QUOTAS = ['mqtt_connections', 'mqtt_sessions', 'mqtt_subscriptions'] as const
export type SessionQuota = (typeof SESSION_QUOTAS)[number]

const COUNTED: Readonly<Record<SessionQuota, Sql<unknown>>> = {
  mqtt_connections: sql`JOIN mqtt_sessions s ON s.client_key = c.key AND s.is_connected`,
  mqtt_sessions: sql`JOIN mqtt_sessions s ON s.client_key = c.key AND ${isUnexpired('s')}`,
  mqtt_subscriptions: sql`JOIN mqtt_sessions s ON s.client_key = c.key AND ${isUnexpired('s')}
     JOIN mqtt_subscriptions u ON u.session_key = s.key`,
}

/** The usage of the domains now. */
export async function countSessionUsage(
  db: Queryable,
  name: SessionQuota,
  domainKeys: readonly number[],
): Promise<Map<number, number>> {
  const { rows } = await sql<{ domain_key: number; used: number }>`
    SELECT c.domain_key, count(*)::int AS used FROM clients c ${COUNTED[name]}
     WHERE c.domain_key = ANY (${[...domainKeys]}::bigint[]) GROUP BY 1`.execute(db)
  return new Map(rows.map((row) => [row.domain_key, row.used]))
}

/** How many more a domain may have; undefined: no limit. */
export type Room = number | undefined

export class SessionQuotas {
  readonly #meters: Readonly<Record<SessionQuota, DomainMeter>>

  constructor({ db, quotas, logger }: { db: Queryable; quotas: Pick<Quotas, 'ofDomain'>; logger: Logger }) {
    const meterOf = (name: SessionQuota) =>
      new DomainMeter({
        limitOf: (domainKey) => quotas.ofDomain(domainKey, name),
        read: (domainKeys) => countSessionUsage(db, name, domainKeys),
        logger,
      })
    this.#meters = {
      mqtt_connections: meterOf('mqtt_connections'),
      mqtt_sessions: meterOf('mqtt_sessions'),
      mqtt_subscriptions: meterOf('mqtt_subscriptions'),
    }
  }

  /** Resolves when `room` can use a recent figure; undefined: there is no limit. */
  ready(domainKey: number, name: SessionQuota): Promise<unknown> | undefined {
    return this.#meters[name].ready(domainKey)
  }

  /** If there is no recent figure, the database does not answer, and there is room as far as is known. */
  room(domainKey: number, name: SessionQuota): Room {
    const limit = this.#meters[name].limitOf(domainKey)
    return limit === undefined ? undefined : Math.max(0, limit - (this.#meters[name].used(domainKey) ?? 0))
  }

  /** This process committed a change. Without a quota nothing is counted. */
  add(domainKey: number, name: SessionQuota, change: number): void {
    this.#meters[name].add(domainKey, change)
  }

  /** The error of a domain that has no more room. */
  refusal(domainKey: number, name: SessionQuota): ServiceError {
    const limit = this.#meters[name].limitOf(domainKey) ?? 0
    return new ServiceError('quota_exceeded', `the quota of the domain is ${limit} ${DOMAIN_QUOTAS[name].noun}`)
  }
}
