import { afterAll, beforeAll } from 'vitest'

/**
 * What the tests of a file share, such as a platform or a tenant: made before the first test, disposed of after the last one and after the
 * file's own `afterAll`. Worlds that build on each other are made in the order of their calls. Empty until then: read it in tests and hooks.
 */
export function useWorld<T extends object>(start: () => Promise<T>): T {
  const world = {} as T & Partial<AsyncDisposable>
  beforeAll(async () => {
    Object.assign(world, await start())
  })
  // Absent after a start that failed, and in worlds that end with another one.
  afterAll(() => world[Symbol.asyncDispose]?.())
  return world
}
