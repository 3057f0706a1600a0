/** A personal access token and one of its scopes. */
import type { ScopeEntityType, ScopeOperation } from '../access/index.ts'

export const PAT_STATUSES = ['active', 'expired', 'revoked'] as const
export type PatStatus = (typeof PAT_STATUSES)[number]

export type PatRecord = {
  key: number
  id: string
  userId: string
  name: string
  description: string
  issuedAt: string
  expiresAt: string
  updatedAt: string | null
  lastUsedAt: string | null
  revokedAt: string | null
  status: PatStatus
}

export type ScopeRecord = {
  id: string
  patId: string
  type: ScopeEntityType
  operation: ScopeOperation
  domainId: string | null
  entityId: string | null
}
