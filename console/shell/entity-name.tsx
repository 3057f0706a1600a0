/** Names of entities of any type that a person chooses. */
import { useQuery } from '@tanstack/react-query'
import { call } from '../api/call.ts'
import { isNamedType, useNameOf } from './names.tsx'
import type { NamedType } from './names.tsx'

/** What is looked up one by one. */
type SingleType = 'rule' | 'task' | 'worker' | 'workflow'
export type ChosenType = NamedType | SingleType

const NAMES_MS = 60_000

async function nameOfOne(type: SingleType, domain: string, id: string, signal: AbortSignal): Promise<string> {
  const options = { isLookup: true, signal }
  switch (type) {
    case 'rule': {
      const params = { domain_id: domain, rule_id: id }
      return (await call('GET /{domain_id}/rules/{rule_id}', { params, ...options })).name
    }
    case 'task':
      return (await call('GET /tasks/{task_id}', { params: { task_id: id }, ...options })).name
    case 'worker':
      return (await call('GET /workers/{worker_id}', { params: { worker_id: id }, ...options })).name
    case 'workflow':
      return (await call('GET /workflows/{workflow_id}', { params: { workflow_id: id }, ...options })).name
  }
}

/** The name, or the first digits of the id while it is unknown, and of what is gone. */
export function useEntityName(type: ChosenType, domain: string, id: string): string {
  const named = useNameOf(isNamedType(type) ? type : 'client', domain, isNamedType(type) ? id : '')
  const { data: single } = useQuery({
    queryKey: ['single name', type, domain, id],
    queryFn: async ({ signal }) => (isNamedType(type) ? '' : await nameOfOne(type, domain, id, signal)),
    enabled: !isNamedType(type) && id !== '',
    staleTime: NAMES_MS,
    retry: false,
  })
  const name = isNamedType(type) ? named : single
  return name === undefined || name === '' ? id.slice(0, 8) : name
}

export function EntityName({ type, domain, id }: { type: ChosenType; domain: string; id: string }) {
  return <span dir="auto">{useEntityName(type, domain, id)}</span>
}
