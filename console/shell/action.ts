/** An action of the user: busy while it runs, errors in one place, everything that is shown is asked again. */
import { useCallback, useRef, useState } from 'react'
import { ApiError } from '../api/errors.ts'
import { refresh } from '../api/queries.ts'
import type { Failure, FormAction } from '../design/form.tsx'
import { dismissFailures, showToast } from '../design/layers.tsx'
import { reportError } from './states.tsx'

/** A value of a form that the console itself refuses, before it asks the server. */
export class InputError extends Error {
  /** The name of the field. */
  readonly field: string

  constructor(field: string, message: string) {
    super(message)
    this.name = 'InputError'
    this.field = field
  }
}

type Act<A extends unknown[]> = (...given: A) => Promise<string | void>

function useRun<A extends unknown[]>(
  act: Act<A>,
  onError: (error: unknown) => void,
  onDone?: () => void,
): [(...given: A) => Promise<boolean>, boolean] {
  const [isBusy, setBusy] = useState(false)
  const latest = useRef({ act, onError, onDone })
  latest.current = { act, onError, onDone }
  const run = useCallback(async (...given: A) => {
    setBusy(true)
    try {
      const said = await latest.current.act(...given)
      await refresh()
      latest.current.onDone?.()
      dismissFailures()
      if (typeof said === 'string') showToast('ok', said)
      return true
    } catch (error) {
      latest.current.onError(error)
      return false
    } finally {
      setBusy(false)
    }
  }, [])
  return [run, isBusy]
}

/** The action of a button or a menu. `what` says what did not happen, in a toast. The action of a form is `useFormAction`. */
export function useAction<A extends unknown[]>(
  what: string,
  act: Act<A>,
): [(...given: A) => Promise<boolean>, boolean] {
  return useRun(act, (error) => reportError(error, what))
}

/**
 * The action of a form, which shows what went wrong. `onDone` runs after a success, when what is shown is what is stored. A dialog that
 * closed before it and is opened again would begin with what was stored before, and save it again.
 */
export function useFormAction(what: string, act: Act<[]>, onDone?: () => void): FormAction {
  const [failure, setFailure] = useState<Failure>()
  const clear = useCallback(() => setFailure(undefined), [])
  // A form of a page stays: what was wrong before must not stand at a field that was right.
  const done = () => (clear(), onDone?.())
  const [run, isBusy] = useRun(act, (error) => setFailure(describeFailure(error, what)), done)
  return { run, isBusy, failure, clear }
}

function describeFailure(error: unknown, what: string): Failure {
  if (error instanceof InputError)
    return { what, message: error.message, fields: [{ path: error.field, message: error.message, isSentence: true }] }
  const known = error instanceof ApiError ? error : undefined
  return {
    what,
    message: error instanceof Error ? error.message : String(error),
    fields: known?.details ?? [],
    note: known?.requestId === undefined ? undefined : `Request ${known.requestId}`,
  }
}
