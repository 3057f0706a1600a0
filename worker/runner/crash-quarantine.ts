/**
 * Modules whose runners crashed. Several guests share a runner, and a crash does not show which of them caused it: after
 * three crashes a module runs alone, and after three more crashes alone it fails. Crashes are counted per domain, so that a
 * domain that crashes runners on purpose cannot quarantine a module of another domain.
 */

/** Shared crashes before a module runs alone, and crashes alone before it fails. */
const MAX_CRASHES = 3
/** Limit of recorded modules; the one that crashed longest ago is removed first. */
const MAX_QUARANTINED = 10_000

/** A module of a domain. */
export type DomainModule = { domain: string; digest: string }

type Record = { sharedCrashes: number; loneCrashes: number }

export class CrashQuarantine {
  readonly #records = new Map<string, Record>()

  mustRunAlone(module: DomainModule): boolean {
    return (this.#records.get(keyOf(module))?.sharedCrashes ?? 0) >= MAX_CRASHES
  }

  /** The runner crashed while it ran these modules. */
  recordSharedCrash(modules: readonly DomainModule[]): void {
    for (const key of new Set(modules.map((module) => keyOf(module)))) this.#touch(key).sharedCrashes++
  }

  /** The runner crashed while it ran only this module; true at the last allowed crash. */
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
