/** An action of the user: busy while it runs, errors in one place, everything that is shown is asked again. */
import { useCallback, useState } from 'react'
import { refresh } from '../api/queries.ts'
import { showToast } from '../design/layers.tsx'
import { reportError } from './states.tsx'

export function useAction<A extends unknown[]>(
  what: string,
  act: (...given: A) => Promise<string | void>,
): [(...given: A) => Promise<boolean>, boolean] {
  const [isBusy, setBusy] = useState(false)
  const run = useCallback(
    async (...given: A) => {
      setBusy(true)
      try {
        const said = await act(...given)
        await refresh()
        if (typeof said === 'string') showToast('ok', said)
        return true
      } catch (error) {
        reportError(error, what)
        return false
      } finally {
        setBusy(false)
      }
    },
    [act, what],
  )
  return [run, isBusy]
}
