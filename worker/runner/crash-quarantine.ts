/**
 * Modules whose runners crashed. Several guests share a runner, and a crash does not say which of them caused it: after three
 * crashes a module runs alone, and after three more crashes alone it fails. A module counts per domain, so that a domain that
 * crashes runners on purpose puts no module of another domain under quarantine.
 */

/** Crashes in company before a module runs alone, and crashes alone before it fails. */
const MAX_CRASHES = 3
/** Modules remembered; the one that crashed longest ago is forgotten first. */
const MAX_QUARANTINED = 10_000

/** A module of a domain. */
export type DomainModule = { domain: string; digest: string }

type Record = { sharedCrashes: number; loneCrashes: number }

export class CrashQuarantine {
  readonly #records = new Map<string, Record>()

  mustRunAlone(module: DomainModule): boolean {
    return (this.#records.get(keyOf(module))?.sharedCrashes ?? 0) >= MAX_CRASHES
  }

  /** The runner crashed with these modules in it. */
  recordSharedCrash(modules: readonly DomainModule[]): void {
    for (const key of new Set(modules.map((module) => keyOf(module)))) this.#touch(key).sharedCrashes++
  }

  /** The runner crashed with this module alone in it; true at the last crash that it is allowed. */
  recordLoneCrash(module: DomainModule): boolean {
    const record = this.#touch(keyOf(module))
    record.loneCrashes++
    return record.loneCrashes >= MAX_CRASHES
  }

  #touch(key: string): Record {
    const record = this.#records.get(key) ?? { sharedCrashes: 0, loneCrashes: 0 }
    this.#records.delete(key)
    this.#records.set(key, record)
    for (const oldest of this.#records.keys()) {
      if (this.#records.size <= MAX_QUARANTINED) break
      this.#records.delete(oldest)
    }
    return record
  }
}

function keyOf({ domain, digest }: DomainModule): string {
  return `${domain} ${digest}`
}
