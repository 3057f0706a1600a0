/** Parts of a screen that are not on its first picture: their code is loaded when they are shown, below a `Suspense`. */
import { lazy, useState } from 'react'
import type { ComponentType, FunctionComponent } from 'react'

type Later<P> = FunctionComponent<P> & {
  /** Loads the code before the part is shown. A failure is reported where it is shown. */
  prepare(): void
}

export function later<P extends object>(load: () => Promise<ComponentType<P>>): Later<P> {
  // Code that is there is used at once: React would show the fallback for a third of a second.
  let loaded: ComponentType<P> | undefined
  const loadOnce = async () => (loaded ??= await load())
  const begin = () =>
    lazy(async () => {
      try {
        return { default: await loadOnce() }
      } catch (error) {
        // The next one that is shown tries again.
        waiting = begin()
        throw error
      }
    })
  let waiting = begin()
  function Part(props: P) {
    const [Shown] = useState<ComponentType<P>>(() => loaded ?? waiting)
    return <Shown {...props} />
  }
  return Object.assign(Part, { prepare: () => void loadOnce().catch(() => undefined) })
}
