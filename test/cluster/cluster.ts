/** The whole installation of `docs/scale.md`, stage 3, on loopback, with traffic on it and a table of what faults cost. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { RedisServer } from '../core/redis-server.ts'
import { DatabaseCluster } from './database-cluster.ts'
import { startPrograms } from './programs.ts'
import type { Programs } from './programs.ts'
import { Traffic } from './traffic.ts'
import type { Outage } from './traffic.ts'

/** How long every part may take to serve again. The goals, far below, are for a machine that does nothing else. */
const HEAL_DEADLINE_MS = 60_000
/** Of each program, where a check failed. */
const OUTPUT_LINES = 30

export class Cluster implements AsyncDisposable {
  readonly database: DatabaseCluster
  readonly redis: RedisServer
  readonly programs: Programs
  readonly traffic: Traffic
  readonly #stack: AsyncDisposableStack
  /** The fault after which something was wrong: what comes after it would prove nothing. */
  #failed: string | undefined
  readonly #rows: { fault: string; outage: Outage }[] = []

  private constructor(
    stack: AsyncDisposableStack,
    parts: { database: DatabaseCluster; redis: RedisServer; programs: Programs; traffic: Traffic },
  ) {
    this.#stack = stack
    this.database = parts.database
    this.redis = parts.redis
    this.programs = parts.programs
    this.traffic = parts.traffic
  }

  static async start(): Promise<Cluster> {
    const folder = mkdtempSync(join(tmpdir(), 'skein-ha-'))
    await using stack = new AsyncDisposableStack()
    stack.defer(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }))
    const database = stack.use(await DatabaseCluster.start(folder))
    const redis = stack.use(await RedisServer.start())
    const programs = stack.use(
      await startPrograms({
        SKEIN_DATABASE_URL: database.primaryUrl,
        SKEIN_DATABASE_REPLICA_URL: database.replicaUrl,
        SKEIN_DATABASE_HA: 'true',
        SKEIN_REDIS_URL: redis.url,
      }),
    )
    const traffic = await Traffic.begin(programs)
    stack.defer(() => traffic.end())
    await traffic.flows('after the start', HEAL_DEADLINE_MS)
    return new Cluster(stack.move(), { database, redis, programs, traffic })
  }

  /**
   * Causes the fault, waits until everything is served again, and notes how long it was not. Then repairs it, waits for three
   * database servers and all programs, and checks what is there.
   */
  async suffer(fault: string, cause: () => Promise<void> | void, repair: () => Promise<void> | void): Promise<void> {
    if (this.#failed !== undefined) throw new Error(`not tried: the cluster did not recover from: ${this.#failed}`)
    this.#failed = fault
    const sinceMs = performance.now()
    try {
      await cause()
      await this.traffic.flows(`after: ${fault}`, HEAL_DEADLINE_MS)
      await repair()
      await this.database.untilWhole()
      for (const program of [...this.programs.api, ...this.programs.managers]) await program.untilHealthy()
      // A second interruption, by the repair, counts too.
      await this.traffic.flows(`after the repair of: ${fault}`, HEAL_DEADLINE_MS)
      this.#rows.push({ fault, outage: this.traffic.outageSince(sinceMs) })
      await this.traffic.check(`after: ${fault}`)
    } catch (error) {
      for (const { name, output } of this.programs.all)
        process.stdout.write(`\n${name}:\n${output.split('\n').slice(-OUTPUT_LINES).join('\n')}`)
      throw error
    }
    this.#failed = undefined
  }

  /** Seconds without service, as a table in Markdown. */
  get table(): string {
    const seconds = (valueMs: number) => (valueMs / 1000).toFixed(1)
    const { messages, runs, revoked } = this.traffic.sums
    return [
      '| Fault | HTTP, WebSocket, CoAP (s) | MQTT (s) | Tasks (s) | Changes of entities (s) |',
      '|---|---|---|---|---|',
      ...this.#rows.map(
        ({ fault, outage }) =>
          `| ${fault} | ${[outage.messages, outage.mqtt, outage.tasks, outage.changes].map(seconds).join(' | ')} |`,
      ),
      '',
      `acknowledged: ${messages} messages, ${runs} runs, ${revoked} clients disabled`,
      '',
    ].join('\n')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync()
  }
}
