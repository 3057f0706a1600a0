/** Shares concurrent work of the same key. */
export class SingleFlight<T> {
  readonly #underWay = new Map<string, Promise<T>>()

  /** Joins the running work of this key, or starts it. All callers get its failure; nothing is cached. */
  run(key: string, work: () => Promise<T>): Promise<T> {
    const joined = this.#underWay.get(key)
    if (joined !== undefined) return joined
    const begun = work().finally(() => this.#underWay.delete(key))
    this.#underWay.set(key, begun)
    return begun
  }
}
