/** A worker that joined a scripted manager, in a data folder of its own. */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readConfig } from '#core/config/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { Readiness } from '#core/readiness/index.ts'
import { WORKER_SETTINGS, startWorker } from '#worker/index.ts'
import type { Worker } from '#worker/index.ts'
import { JOIN_TOKEN, ScriptedManager } from './scripted-manager.ts'

const logger = createLogger({ name: 'test', level: 'fatal' })

export class JoinedWorker {
  readonly folder: string
  manager: ScriptedManager
  #worker: Worker | undefined

  private constructor(folder: string, manager: ScriptedManager) {
    this.folder = folder
    this.manager = manager
  }

  static async start(environment: Record<string, string> = {}): Promise<JoinedWorker> {
    const folder = mkdtempSync(join(tmpdir(), 'skein-worker-'))
    // Runners have users of their own where the tests run as root.
    chmodSync(folder, 0o755)
    const joined = new JoinedWorker(folder, await ScriptedManager.start())
    await joined.join(environment)
    return joined
  }

  /** Resolves when the first session stands. */
  async join(environment: Record<string, string> = {}): Promise<void> {
    this.#worker = await this.begin(environment)
  }

  begin(environment: Record<string, string> = {}, signal?: AbortSignal): Promise<Worker> {
    const config = readConfig(WORKER_SETTINGS, {
      SKEIN_DATA_DIR: this.folder,
      SKEIN_WORKER_MANAGER: this.manager.address,
      SKEIN_WORKER_TOKEN: JOIN_TOKEN,
      SKEIN_WORKER_SLOTS: '2',
      SKEIN_WORKER_DRAIN: '50ms',
      ...environment,
    })
    const timing = { reconnectMinMs: 10, reconnectMaxMs: 50, leaseCheckMs: 10 }
    return startWorker({
      config,
      logger,
      readiness: new Readiness(),
      version: '0.1.0',
      timing,
      ...(signal === undefined ? {} : { signal }),
    })
  }

  async stop(): Promise<void> {
    await this.#worker?.stop()
    this.#worker = undefined
  }

  /** The manager is gone; another one can be started at its address. */
  async stopManager(): Promise<void> {
    await this.manager[Symbol.asyncDispose]()
  }

  async startManager(): Promise<void> {
    const { address } = this.manager
    this.manager = new ScriptedManager()
    await this.manager.listen(address)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
    await this.stopManager()
    rmSync(this.folder, { recursive: true })
  }
}
