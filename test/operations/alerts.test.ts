/**
 * Faults that are made, and the alert rules that they make true: a Prometheus scrapes the running product every second and evaluates
 * the expressions of deploy/monitoring/alerts.yml. Rules about hours are tested with series in alerts.rules-test.yml.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { hasPrometheus, startPrometheus } from '../harness/prometheus.ts'
import type { Prometheus } from '../harness/prometheus.ts'
import { until } from '../harness/until.ts'
import { commandOf, createInstallation, familyOf, startWhole } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import { ROOT, alertNamed, readAlerts } from './monitoring-files.ts'

const DEADLINE_MS = 90_000
/** What they say of the machine that the test runs on is not ours. */
const OF_THE_MACHINE = ['SkeinDiskNearlyFull', 'SkeinDiskFullSoon', 'SkeinEventLoopBlocked']
/** Below the limit of a body; 32 of them are more than 80 % of what may wait, and less than all of it. */
const LARGE_MESSAGE_BYTES = 950_000
const LARGE_MESSAGES = 32

describe.skipIf(!hasPrometheus)('alerts (needs the Debian package prometheus)', () => {
  let installation: Installation
  let whole: Whole
  let prometheus: Prometheus
  const stack = new AsyncDisposableStack()

  beforeAll(async () => {
    // A registry that nobody serves.
    installation = stack.use(await createInstallation({ PROXY_REGISTRY_URL: 'http://127.0.0.1:1' }))
    whole = stack.use(await startWhole(installation))
    prometheus = stack.use(await startPrometheus([new URL(installation.base).host]))
    await until(
      async () => (await valueOf('skein_collector_age_seconds{reading="database"}')) !== undefined,
      'a scrape',
    )
    // An increase needs two samples.
    await until(async () => ((await valueOf('count_over_time(up[1m])')) ?? 0) >= 3, 'three scrapes')
  })
  afterAll(() => stack.disposeAsync())

  async function valueOf(expression: string): Promise<number | undefined> {
    return (await prometheus.query(expression))[0]?.value
  }

  const isTrue = async (alert: string) => (await prometheus.query(alertNamed(alert).expr)).length > 0
  const untilTrue = (alert: string) => until(() => isTrue(alert), `${alert} is true`, DEADLINE_MS)
  const untilOver = (alert: string) => until(async () => !(await isTrue(alert)), `${alert} is over`, DEADLINE_MS)

  /** Stops processes of the installation for as long as the work takes. */
  async function whileStopped(isMeant: (command: string) => boolean, work: () => Promise<void>): Promise<void> {
    const pids = familyOf(whole.pid).filter((pid) => isMeant(commandOf(pid)))
    expect(pids.length).toBeGreaterThan(0)
    for (const pid of pids) process.kill(pid, 'SIGSTOP')
    try {
      await work()
    } finally {
      for (const pid of pids) {
        try {
          process.kill(pid, 'SIGCONT')
        } catch {
          // It was replaced meanwhile.
        }
      }
    }
  }

  async function connectDatabase(): Promise<AsyncDisposable & Pick<pg.Client, 'query'>> {
    const client = new pg.Client({
      host: join(installation.dataDir, 'postgres', 'run'),
      user: 'skein',
      database: 'skein',
      password: readFileSync(join(installation.dataDir, 'postgres.password'), 'utf8').trim(),
    })
    await client.connect()
    return Object.assign(client, { [Symbol.asyncDispose]: () => client.end() })
  }

  test('are silent while everything works', async () => {
    const firing: string[] = []
    for (const { alert } of readAlerts()) {
      if (!OF_THE_MACHINE.includes(alert) && (await isTrue(alert))) firing.push(alert)
    }
    expect(firing).toEqual([])
  })

  test('a registry that does not answer', async () => {
    const { id } = (await whole.call('POST', '/tasks', { body: { name: 'remote', image_url: 'modules/add:1' } })).json<{
      id: string
    }>()
    expect((await whole.call('POST', `/tasks/${id}/start`)).status).toBeGreaterThanOrEqual(500)
    await untilTrue('SkeinRegistryFailing')
  })

  test('a suspended worker loses its lease, and a run waits for one', async () => {
    const { id } = (await whole.call('POST', '/tasks', { body: { name: 'add', inputs: [1, 2] } })).json<{
      id: string
    }>()
    const file = new FormData()
    file.append('file', new Blob([readFileSync(join(ROOT, 'examples/add/add.wasm'))]), 'add.wasm')
    expect((await whole.call('PUT', `/tasks/${id}/upload`, { body: file })).status).toBe(200)
    const isWorker = (command: string) => /worker\.[jt]s|runner|transpile/.test(command)
    await whileStopped(isWorker, async () => {
      await untilTrue('SkeinNoWorkers')
      await untilTrue('SkeinWorkerLost')
      expect((await whole.call('POST', `/tasks/${id}/start`)).status).toBeLessThan(300)
      await using database = await connectDatabase()
      // As if the worker had been away for ten minutes.
      await database.query("UPDATE runs SET created_at = now() - interval '10 minutes' WHERE queue_seq IS NOT NULL")
      await untilTrue('SkeinRunQueueOld')
    })
    await untilOver('SkeinNoWorkers')
    await untilOver('SkeinRunQueueOld')
    await until(
      async () => ((await valueOf('sum(skein_runs_total{state="completed"})')) ?? 0) >= 1,
      'the end of the run',
    )
  })

  test('a database that does not commit: messages wait, then their publishers get an error', async () => {
    const authorization = `Bearer ${
      (
        await whole.call('POST', '/users/tokens/issue', { body: { identity: 'admin', secret: 'the-first-admin' } })
      ).json<{ access_token: string }>().access_token
    }`
    const idOf = async (path: string, body: object) =>
      (await whole.call('POST', path, { body, authorization })).json<{ id: string }>().id
    const domainId = await idOf('/domains', { name: 'alerts' })
    const channelId = await idOf(`/${domainId}/channels`, {})
    await using database = await connectDatabase()
    await database.query('BEGIN; LOCK TABLE ingest_batches IN EXCLUSIVE MODE; SELECT pg_current_xact_id()')
    const sent = Array.from({ length: LARGE_MESSAGES }, () =>
      fetch(`${installation.base}/m/${domainId}/c/${channelId}`, {
        method: 'POST',
        headers: { 'content-type': 'application/octet-stream', authorization },
        body: Buffer.alloc(LARGE_MESSAGE_BYTES),
      }).then(({ status }) => status),
    )
    await untilTrue('SkeinIngestQueueFilling')
    await untilTrue('SkeinIngestRefusing')
    const age = 'max(skein_database_oldest_writing_transaction_age_seconds)'
    await until(async () => ((await valueOf(age)) ?? 0) > 5, 'the age of the transaction', DEADLINE_MS)
    await database.query('ROLLBACK')
    await untilOver('SkeinIngestQueueFilling')
    await until(async () => ((await valueOf(age)) ?? 1) < 5, 'the end of the transaction', DEADLINE_MS)
    expect(new Set(await Promise.all(sent)).has(504)).toBe(true)
  })

  test('a stopped database', async () => {
    await whileStopped(
      (command) => /postgres/.test(command),
      async () => {
        await untilTrue('SkeinCachesStale')
        await untilTrue('SkeinDatabaseUnreachable')
        // What cannot be read is not shown: nobody takes it for the present.
        await until(
          async () => (await valueOf('skein_run_queue_runs')) === undefined,
          'the end of old values',
          DEADLINE_MS,
        )
      },
    )
    await untilOver('SkeinCachesStale')
    await untilOver('SkeinDatabaseUnreachable')
  })

  test('a program that ends', async () => {
    whole.kill('SIGTERM')
    await untilTrue('SkeinTargetDown')
  })
})
