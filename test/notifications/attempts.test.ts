/** Attempts of one subscription that end at the same time, in every way: none fails because of another one. */
import { expect, test } from 'vitest'
import { DATABASE_METRICS } from '#core/database/index.ts'
import { sql } from '#core/sql.ts'
import {
  completeDelivery,
  deferDeliveries,
  failDeliveries,
  holdDeliveries,
} from '../../api/provisioning/notifications/repository.ts'
import type { DueDelivery } from '../../api/provisioning/notifications/repository.ts'
import { newTenant } from '../api/support.ts'
import { startTestApi } from '../harness/api.ts'

const ROUNDS = 40
const WAITING = 40
const ATTEMPTS = 8
const LEASE_SECONDS = 120

/** Transactions of this process that PostgreSQL ended for others. */
const repeats = async () => (await DATABASE_METRICS.repeats.instrument.get()).values[0]?.value ?? 0

test('attempts that end at the same time wait for each other, and none is lost in a deadlock', async () => {
  // Nothing is claimed meanwhile.
  await using api = await startTestApi({
    environment: { SKEIN_WEBHOOK_HOSTS: '127.0.0.1:9' },
    notificationTimes: { intervalMs: 3_600_000 },
  })
  const tenant = await newTenant(api)
  const topic = (await tenant.newChannel()).id
  const made = await tenant.call('POST', '/subscriptions', { topic, contact: 'http://127.0.0.1:9/' })
  expect(made.status, made.text).toBe(201)
  const { database } = api
  const hold = { reason: 'no right', pauseSeconds: -1, expiryDays: 7 }
  const failed = { retrySeconds: [-1, -1, -1], error: 'no answer' }
  const ways = [
    (due: DueDelivery) => completeDelivery(database, due, LEASE_SECONDS),
    (due: DueDelivery) => database.transaction((tx) => deferDeliveries(tx, due, -1, 0.01)),
    (due: DueDelivery) => database.transaction((tx) => holdDeliveries(tx, due, hold)),
    (due: DueDelivery) => database.transaction((tx) => failDeliveries(tx, due, { ...failed, isForAll: false })),
    (due: DueDelivery) => database.transaction((tx) => failDeliveries(tx, due, { ...failed, isForAll: true })),
  ]
  const before = await repeats()
  for (let round = 0; round < ROUNDS; round++) {
    await sql`DELETE FROM notification_deliveries`.execute(database.db)
    await sql`INSERT INTO notification_deliveries (subscription_key, user_key, payload, next_attempt_at)
      SELECT key, user_key, jsonb_build_object('publisher', (n % 3)::text), now() - random() * interval '1 second'
        FROM notification_subscriptions, generate_series(1, ${WAITING}) n ORDER BY random()`.execute(database.db)
    const { rows } = await sql<Pick<DueDelivery, 'key' | 'subscriptionKey' | 'payload'>>`
      UPDATE notification_deliveries SET next_attempt_at = now() + make_interval(secs => ${LEASE_SECONDS}), attempts = 1
       WHERE key IN (SELECT key FROM notification_deliveries ORDER BY random() LIMIT ${ATTEMPTS})
      RETURNING key, subscription_key AS "subscriptionKey", payload`.execute(database.db)
    expect(rows).toHaveLength(ATTEMPTS)
    await Promise.all(
      rows.map(async (row, index) => {
        await ways[(index + round) % ways.length]?.({ ...row, attempts: 1, hasFailed: true } as DueDelivery)
      }),
    )
  }
  expect(await repeats()).toBe(before)
}, 60_000)
