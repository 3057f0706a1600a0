/**
 * The offline tasks of this worker on disk, and how far their ticks are. Two files, each replaced as a whole and synced: the definitions, which a
 * manager sends, and the progress, which is written before the runs of ticks begin. A damaged file counts as absent,
 * but no tick from before is started.
 */
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fromBinary, toBinary } from '@bufbuild/protobuf'
import type { Logger } from '#core/logging/index.ts'
import { replaceFile } from '#core/sync-folder.ts'
import { OfflineTasksSchema } from '#proto/index.ts'
import type { OfflineTask, OfflineTasks } from '#proto/index.ts'
import type { KnownTimes } from './clock.ts'

/** A tick that was started and whose result is not on disk yet. */
export type StartedTick = {
  tickMs: number
  /** Ticks since the run before it that started no run. */
  missed: number
}

export type Progress = {
  /** Of the definition that it is about, as text. */
  fence: string
  /** The newest tick that has passed. */
  lastTickMs: number
  missed: number
  started: StartedTick | null
}

export type Written = {
  times: KnownTimes
  tasks: Readonly<Record<string, Progress>>
  /** The file was there and could not be read: which ticks have passed is not known. */
  isDamaged?: boolean
}

type Found<T> = { value: T | undefined; isDamaged: boolean }

const NOTHING: Written = { times: { managerMs: 0, clockMs: 0 }, tasks: {} }

export class OfflineStore {
  readonly #folder: string
  readonly #logger: Logger

  constructor(folder: string, logger: Logger) {
    this.#folder = folder
    this.#logger = logger
  }

  async read(): Promise<{ tasks: OfflineTask[]; written: Written }> {
    const { value: found } = await this.#readFile('tasks', (bytes) => fromBinary(OfflineTasksSchema, bytes))
    const progress = await this.#readFile('progress', (bytes) => fromJson(bytes.toString('utf8')))
    const { times, tasks } = progress.value ?? NOTHING
    // The tasks are written when a manager tells its time, and the progress later.
    const managerMs = found === undefined ? times.managerMs : Number(found.nowMs)
    const { isDamaged } = progress
    return { tasks: found?.tasks ?? [], written: { times: { ...times, managerMs }, tasks, isDamaged } }
  }

  async writeTasks(tasks: OfflineTasks): Promise<void> {
    await this.#replace('tasks', toBinary(OfflineTasksSchema, tasks))
  }

  async writeProgress(written: Written): Promise<void> {
    await this.#replace('progress', Buffer.from(JSON.stringify(written)))
  }

  async #readFile<T>(name: string, parse: (bytes: Buffer) => T): Promise<Found<T>> {
    const path = join(this.#folder, name)
    try {
      return { value: parse(await readFile(path)), isDamaged: false }
    } catch (error) {
      const isDamaged = (error as NodeJS.ErrnoException).code !== 'ENOENT'
      if (isDamaged)
        this.#logger.warn({ path, err: error }, 'failed to read the offline tasks on disk; a manager sends them again')
      return { value: undefined, isDamaged }
    }
  }

  async #replace(name: string, bytes: Uint8Array): Promise<void> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 })
    await replaceFile(join(this.#folder, name), bytes, 0o600)
  }
}

/** Throws for what this version has not written. */
function fromJson(text: string): Written {
  const { times, tasks } = JSON.parse(text) as Written
  if (!Number.isFinite(times.managerMs) || !Number.isFinite(times.clockMs)) throw new TypeError('its times are missing')
  for (const { fence, lastTickMs, missed, started } of Object.values(tasks)) {
    const numbers = [lastTickMs, missed, ...(started === null ? [] : [started.tickMs, started.missed])]
    if (typeof fence !== 'string' || !numbers.every(Number.isFinite)) throw new TypeError('a task is damaged')
  }
  return { times, tasks }
}
