/** Equal questions at the same time are asked once. */

export type SingleFlight<T> = {
  /** Joins the work under way for this key, or begins it. A failure is everybody's, and forgotten with the success. */
  run(key: string, work: () => Promise<T>): Promise<T>
}

export function createSingleFlight<T>(): SingleFlight<T> {
  const underWay = new Map<string, Promise<T>>()
  return {
    run(key, work) {
      const joined = underWay.get(key)
      if (joined !== undefined) return joined
      const begun = work().finally(() => underWay.delete(key))
      underWay.set(key, begun)
      return begun
    },
  }
}
