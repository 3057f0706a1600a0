/** Equal questions at the same time are asked once. */
export class SingleFlight<T> {
  readonly #underWay = new Map<string, Promise<T>>()

  /** Joins the work under way for this key, or begins it. A failure is everybody's, and forgotten with the success. */
  run(key: string, work: () => Promise<T>): Promise<T> {
    const joined = this.#underWay.get(key)
    if (joined !== undefined) return joined
    const begun = work().finally(() => this.#underWay.delete(key))
    this.#underWay.set(key, begun)
    return begun
  }
}
