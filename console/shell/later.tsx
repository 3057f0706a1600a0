/** Parts of a screen that are not on its first picture: their code is loaded when they are shown, below a `Suspense`. */
import { lazy, useState } from 'react'
import type { ComponentType, FunctionComponent } from 'react'

type Later<P> = FunctionComponent<P> & {
  /** Loads the code before the part is shown. A failure is reported where it is shown. */
  prepare(): void
}

/**
 * How long a part that failed stays failed: React renders again what was never shown before it reports an error, and would wait for the next
 * load without an end.
 */
const FAILED_MS = 3_000

export function later<P extends object>(load: () => Promise<ComponentType<P>>): Later<P> {
  // Code that is there is used at once: React would show the fallback for a third of a second.
  let loaded: ComponentType<P> | undefined
  let failedMs: number | undefined
  const loadOnce = async () => (loaded ??= await load())
  const begin = () =>
    lazy(async () => {
      try {
        return { default: await loadOnce() }
      } catch (error) {
        failedMs = performance.now()
        throw error
      }
    })
  let waiting = begin()
  const next = () => {
    if (failedMs !== undefined && performance.now() - failedMs > FAILED_MS) {
      failedMs = undefined
      waiting = begin()
    }
    return loaded ?? waiting
  }
  function Part(props: P) {
    const [Shown] = useState<ComponentType<P>>(next)
    return <Shown {...props} />
  }
  return Object.assign(Part, { prepare: () => void loadOnce().catch(() => undefined) })
}
