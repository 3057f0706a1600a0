/** Requests as queries: one cache, keys by operation and input. */
import { QueryClient, queryOptions } from '@tanstack/react-query'
import { call } from './call.ts'
import type { Answer, Input, Operation } from './call.ts'
import { ApiError } from './errors.ts'
import { formatJson } from './json.ts'

const STALE_MS = 5_000
const MAX_RETRIES = 3

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: STALE_MS,
      // A refusal stays one; an unreachable server is asked again.
      retry: (count, error) => error instanceof ApiError && [0, 502, 503].includes(error.status) && count < MAX_RETRIES,
      networkMode: 'always',
    },
    mutations: { networkMode: 'always' },
  },
})

export function query<K extends Operation>(operation: K, input: Omit<Input<K>, 'signal'> = {}) {
  return queryOptions<Answer<K>>({
    queryKey: [operation, input.params ?? {}, input.query ?? {}],
    queryFn: async ({ signal }) => ((await call(operation, { ...input, signal } as Input<K>)) ?? null) as Answer<K>,
    // The rows of another filter stay until the new ones arrive; another entity is never shown in place of the one that was opened.
    placeholderData: (before, asked) =>
      formatJson(asked?.queryKey[1]) === formatJson(input.params ?? {}) ? before : undefined,
  })
}

/** Asks again for everything that is shown after a change. */
export async function refresh(): Promise<void> {
  await queryClient.invalidateQueries()
}
