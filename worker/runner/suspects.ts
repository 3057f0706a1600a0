/**
 * Modules that were found in killed runners. Nobody knows which of several guests brought a runner down, so a module
 * that was there three times runs alone from then on, and when it brings its own runner down three times more, it fails.
 * The same module of another domain is another one: whoever kills runners on purpose has nobody else's module suspected.
 */

/** How often a module is found in killed runners before it runs alone, and alone before it fails. */
const MAX_DEATHS = 3
/** Modules remembered; the one that was found longest ago is forgotten first. */
const MAX_SUSPECTS = 10_000

/** A module of a domain. */
export type Suspect = { domain: string; digest: string }

type Record = { deathsInCompany: number; deathsAlone: number }

export class Suspects {
  readonly #records = new Map<string, Record>()

  mustRunAlone(suspect: Suspect): boolean {
    return (this.#records.get(keyOf(suspect))?.deathsInCompany ?? 0) >= MAX_DEATHS
  }

  /** The runner died with these modules in it. */
  foundTogether(suspects: readonly Suspect[]): void {
    for (const key of new Set(suspects.map((suspect) => keyOf(suspect)))) this.#touch(key).deathsInCompany++
  }

  /** The runner died with this module alone in it; true when that was once too often. */
  foundAlone(suspect: Suspect): boolean {
    const record = this.#touch(keyOf(suspect))
    record.deathsAlone++
    return record.deathsAlone >= MAX_DEATHS
  }

  #touch(key: string): Record {
    const record = this.#records.get(key) ?? { deathsInCompany: 0, deathsAlone: 0 }
    this.#records.delete(key)
    this.#records.set(key, record)
    for (const oldest of this.#records.keys()) {
      if (this.#records.size <= MAX_SUSPECTS) break
      this.#records.delete(oldest)
    }
    return record
  }
}

function keyOf({ domain, digest }: Suspect): string {
  return `${domain} ${digest}`
}
