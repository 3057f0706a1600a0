/**
 * Assignments on disk that must survive a restart of this worker, with or without a network: runs with `on_lost: wait`,
 * which the manager assigns to no other worker. One file each, removed when the run's result is in the spool. Secrets are
 * never written to disk, so an assignment with secrets is not stored: the manager sends it again.
 */
import { createHash } from 'node:crypto'
import { mkdir, readFile, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fromBinary, toBinary } from '@bufbuild/protobuf'
import { AssignmentSchema } from '#proto/index.ts'
import type { Assignment } from '#proto/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { replaceFile } from '#core/sync-folder.ts'

const SUFFIX = '.assignment'

export class AssignmentJournal {
  readonly #folder: string
  readonly #logger: Logger

  private constructor(folder: string, logger: Logger) {
    this.#folder = folder
    this.#logger = logger
  }

  static async open(folder: string, logger: Logger): Promise<AssignmentJournal> {
    await mkdir(folder, { recursive: true, mode: 0o700 })
    return new AssignmentJournal(folder, logger)
  }

  /** Unfinished assignments of earlier processes. A truncated or incompatible file is removed. */
  async read(): Promise<Assignment[]> {
    const found: Assignment[] = []
    for (const name of await readdir(this.#folder)) {
      const path = join(this.#folder, name)
      try {
        if (!name.endsWith(SUFFIX)) throw new Error('it is incomplete')
        found.push(fromBinary(AssignmentSchema, await readFile(path)))
      } catch (error) {
        this.#logger.warn({ path, err: error }, 'failed to read an assignment on disk; dropping it')
        await rm(path, { force: true })
      }
    }
    return found
  }

  /** The assignment is synced when this resolves; no effect for an assignment with secrets. */
  async add(key: string, assignment: Assignment): Promise<void> {
    if (Object.keys(assignment.secrets).length > 0) return
    const path = this.#pathOf(key)
    await replaceFile(path, toBinary(AssignmentSchema, assignment), 0o600)
  }

  async remove(key: string): Promise<void> {
    await rm(this.#pathOf(key), { force: true })
  }

  #pathOf(key: string): string {
    return join(this.#folder, createHash('sha256').update(key).digest('hex') + SUFFIX)
  }
}
