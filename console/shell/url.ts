/** All state of a view is in its address: it survives a reload and can be sent to others. */
import { useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { useCallback } from 'react'

type Search = Record<string, string>

export function useParam(name: string): string {
  return (useParams({ strict: false }) as Record<string, string | undefined>)[name] ?? ''
}

export const useDomainId = () => useParam('domain')

/** A value in the query of the address; the default is left out. */
export function useView(name: string, byDefault = ''): [string, (value: string) => void] {
  const search: Search = useSearch({ strict: false })
  const navigate = useNavigate()
  const set = useCallback(
    (value: string) => {
      void navigate({
        to: '.',
        replace: true,
        search: (before: Search) => {
          const { [name]: _before, ...rest } = before
          return value === byDefault ? rest : { ...rest, [name]: value }
        },
      })
    },
    [navigate, name, byDefault],
  )
  return [search[name] ?? byDefault, set]
}

/** Changes several values at once. */
export function useViews(): [Search, (changes: Record<string, string | undefined>) => void] {
  const search: Search = useSearch({ strict: false })
  const navigate = useNavigate()
  const set = useCallback(
    (changes: Record<string, string | undefined>) => {
      void navigate({
        to: '.',
        replace: true,
        search: (before: Search) =>
          Object.fromEntries(
            Object.entries({ ...before, ...changes }).filter(([, value]) => value !== undefined && value !== ''),
          ),
      })
    },
    [navigate],
  )
  return [search, set]
}

export const parseSearch = (text: string): Search => Object.fromEntries(new URLSearchParams(text))
export function stringifySearch(search: Record<string, unknown>): string {
  const given = Object.entries(search).filter(([, value]) => value !== undefined && value !== '')
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString()
  return text === '' ? '' : `?${text}`
}
