/**
 * Modules that were found in killed runners. Nobody knows which of several guests brought a runner down, so a module
 * that was there three times runs alone from then on, and when it brings its own runner down three times more, it fails.
 */

/** How often a module is found in killed runners before it runs alone, and alone before it fails. */
const MAX_DEATHS = 3
/** Modules remembered; the one that was found longest ago is forgotten first. */
const MAX_SUSPECTS = 10_000

type Record = { deathsInCompany: number; deathsAlone: number }

export class Suspects {
  readonly #records = new Map<string, Record>()

  mustRunAlone(digest: string): boolean {
    return (this.#records.get(digest)?.deathsInCompany ?? 0) >= MAX_DEATHS
  }

  /** The runner died with these modules in it. */
  foundTogether(digests: Iterable<string>): void {
    for (const digest of new Set(digests)) this.#touch(digest).deathsInCompany++
  }

  /** The runner died with this module alone in it; true when that was once too often. */
  foundAlone(digest: string): boolean {
    const record = this.#touch(digest)
    record.deathsAlone++
    return record.deathsAlone >= MAX_DEATHS
  }

  #touch(digest: string): Record {
    const record = this.#records.get(digest) ?? { deathsInCompany: 0, deathsAlone: 0 }
    this.#records.delete(digest)
    this.#records.set(digest, record)
    for (const oldest of this.#records.keys()) {
      if (this.#records.size <= MAX_SUSPECTS) break
      this.#records.delete(oldest)
    }
    return record
  }
}
