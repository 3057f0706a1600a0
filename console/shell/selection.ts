/** The selected rows of a list. They survive a reload and a look at one of them, in this tab. */
import { useCallback, useState } from 'react'
import { formatJson, parseJson } from '../api/json.ts'

type Selection = ReadonlySet<string>

function stored(key: string): Selection {
  try {
    const ids: unknown = parseJson(sessionStorage.getItem(key) ?? '[]')
    return new Set(Array.isArray(ids) ? ids.filter((id) => typeof id === 'string') : [])
  } catch {
    return new Set()
  }
}

/** `list`: the list and its domain. */
export function useSelection(list: string): [Selection, (ids: Selection) => void] {
  const key = `skein-selection ${list}`
  const [{ of, ids }, setState] = useState(() => ({ of: key, ids: stored(key) }))
  const select = useCallback(
    (next: Selection) => {
      setState({ of: key, ids: next })
      try {
        if (next.size === 0) sessionStorage.removeItem(key)
        else sessionStorage.setItem(key, formatJson([...next]))
      } catch {
        // A browser that stores nothing keeps it until the reload.
      }
    },
    [key],
  )
  // Another domain has a selection of its own.
  return [of === key ? ids : stored(key), select]
}
