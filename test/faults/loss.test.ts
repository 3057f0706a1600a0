/**
 * What was acknowledged is there, whatever is killed: two api nodes over one PostgreSQL and one Redis, writers on every
 * protocol, and blows with kill -9 (`SKEIN_TEST_BLOWS`: 4, at length 10). Exactly once where it was sent with a key, at least once otherwise. The
 * projections are what a fold of the stored records gives.
 */
import { randomBytes, randomInt } from 'node:crypto'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { superviseEmbeddedPostgres } from '#postgres/embedded/index.ts'
import { RedisServer, hasRedisServer } from '../core/redis-server.ts'
import { createDatabase } from '#core/database/index.ts'
import { silentLogger } from '../harness/database.ts'
import { pendingBatchCount, projectionDifferences } from '../messages/projection-differences.ts'
import { AT_LENGTH } from '../harness/length.ts'
import { until } from '../harness/until.ts'
import { freePorts } from '../harness/ports.ts'
import { createInstallation, launch } from '../harness/whole.ts'
import type { Installation, Whole } from '../harness/whole.ts'
import type { Node } from './loss-writers.ts'
import { expectStored, setUp, writeAll } from './losses.ts'

const BLOWS = Number(process.env['SKEIN_TEST_BLOWS'] ?? (AT_LENGTH ? 10 : 4))
/** Values that every kind of writer gets through between two blows, at the most. */
const MAX_BETWEEN = 40
const READY_DEADLINE_MS = 60_000
/** However hard the blow, traffic flows again within this. */
const HEAL_DEADLINE_MS = 60_000

/** The same numbers for the same seed: SKEIN_TEST_SEED repeats a run's choice of blows. */
function createRandom(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    // mulberry32
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below
  }
}

class ApiNode implements Node, AsyncDisposable {
  readonly base: string
  readonly coapPort: number
  readonly mqttPort: number
  readonly #installation: Installation
  #process: Whole | undefined
  #isOver = false

  constructor(installation: Installation) {
    this.#installation = installation
    this.base = installation.base
    this.coapPort = Number(installation.environment['SKEIN_COAP_PORT'])
    this.mqttPort = Number(installation.environment['SKEIN_MQTT_PORT'])
  }

  /** Runs the node, and runs it again whenever it ends. */
  async begin(): Promise<void> {
    void (async () => {
      while (!this.#isOver) {
        this.#process = launch(this.#installation, 'programs/api.ts')
        await this.#process.ended
      }
    })()
    await until(() => this.isHealthy(), `${this.base} is healthy: ${this.#process?.output()}`, READY_DEADLINE_MS)
  }

  async isHealthy(): Promise<boolean> {
    const answer = await fetch(`${this.base}/health`, { signal: AbortSignal.timeout(2000) }).catch(() => undefined)
    return answer?.status === 200
  }

  get call(): Whole['call'] {
    return (this.#process as Whole).call
  }

  kill(): void {
    this.#process?.kill('SIGKILL')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true
    await this.#process?.[Symbol.asyncDispose]()
    this.#installation[Symbol.dispose]()
  }
}

test.runIf(hasRedisServer())(
  'kill -9 of nodes, PostgreSQL and Redis, again and again at random, loses nothing that was acknowledged on any protocol',
  { timeout: 240_000 + BLOWS * 40_000 },
  async () => {
    const seed = Number(process.env['SKEIN_TEST_SEED'] ?? randomInt(2 ** 31))
    process.stdout.write(`the loss test runs with SKEIN_TEST_SEED=${seed}\n`)
    const random = createRandom(seed)
    const folder = mkdtempSync(join(tmpdir(), 'skein-loss-'))
    chmodSync(folder, 0o755)
    await using stack = new AsyncDisposableStack()
    stack.defer(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }))
    const postgres = await superviseEmbeddedPostgres({
      dataDir: join(folder, 'postgres'),
      log: () => undefined,
      onGiveUp: (error) => process.stdout.write(`${error.message}\n`),
      maxFailures: 2 * BLOWS,
    })
    stack.defer(() => postgres.stop())
    const redis = stack.use(await RedisServer.start())
    const { host, port, user, password, database } = postgres.connection
    const environment = {
      SKEIN_DATABASE_URL: `postgres://${user}:${password}@localhost:${port}/${database}?host=${encodeURIComponent(host)}`,
      SKEIN_REDIS_URL: redis.url,
      SKEIN_SECRET_KEY: randomBytes(32).toString('base64'),
    }
    const nodes: ApiNode[] = []
    for (let count = 0; count < 2; count++) {
      const [coapPort, mqttPort] = await freePorts(2)
      const installation = await createInstallation({
        ...environment,
        SKEIN_COAP_PORT: String(coapPort),
        SKEIN_MQTT_PORT: String(mqttPort),
      })
      const node = stack.use(new ApiNode(installation))
      nodes.push(node)
      await node.begin()
    }
    const [first, second] = nodes as [ApiNode, ApiNode]

    const running = await setUp(first.call)
    let isOver = false
    const writing = writeAll(running, nodes, () => isOver)
    const acknowledged = () => running.map((one) => one.acknowledged.length)
    /** Every kind of writer gets on. */
    const flows = async (by: number, after: string) => {
      const before = acknowledged()
      const hasFlown = () => acknowledged().every((count, index) => count >= (before[index] as number) + by)
      await until(
        hasFlown,
        `traffic flows after ${after}: ${before.join()} → ${acknowledged().join()}`,
        HEAL_DEADLINE_MS,
      )
    }

    const blows: Record<string, () => Promise<void> | void> = {
      'the first node': () => first.kill(),
      'the second node': () => second.kill(),
      PostgreSQL: () => void process.kill(postgres.pid, 'SIGKILL'),
      Redis: async () => {
        await redis.kill()
        // Half of the time it stays away until the next blow.
        if (random(2) === 0) await redis.begin()
      },
      everything: async () => {
        for (const node of nodes) node.kill()
        process.kill(postgres.pid, 'SIGKILL')
        await redis.kill()
      },
    }
    await flows(50, 'the start')
    for (let count = 0; count < BLOWS; count++) {
      const names = Object.keys(blows)
      const name = names[random(names.length)] as string
      await blows[name]?.()
      // Sometimes the next blow falls while the last one is being healed.
      await flows(1 + random(MAX_BETWEEN), `the end of ${name}`)
      if (!redis.isRunning && random(2) === 0) await redis.begin()
    }
    isOver = true
    await writing
    process.stdout.write(
      `acknowledged: ${running.map(({ kind }, index) => `${kind.name} ${acknowledged()[index]}`).join(', ')}\n`,
    )

    for (const node of nodes) await until(() => node.isHealthy(), `${node.base} is healthy`, READY_DEADLINE_MS)
    for (const one of running)
      await expectStored(one, (random(2) === 0 ? first : second).call, `SKEIN_TEST_SEED=${seed}`)

    const projected = createDatabase({
      address: { url: environment.SKEIN_DATABASE_URL },
      maxConnections: 1,
      applicationName: 'loss test',
      logger: silentLogger,
    })
    stack.defer(() => projected.close())
    const isProjected = async () => (await pendingBatchCount(projected.db)) === 0
    await until(isProjected, 'all batches are projected', HEAL_DEADLINE_MS)
    expect(await projectionDifferences(projected.db), `SKEIN_TEST_SEED=${seed}`).toEqual([])
  },
)
