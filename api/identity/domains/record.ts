/** The stored domain, and the role of a user in it. */

export const DOMAIN_STATUSES = ['enabled', 'disabled', 'freezed', 'deleted'] as const
export type DomainStatus = (typeof DOMAIN_STATUSES)[number]

export type DomainRecord = {
  key: number
  id: string
  name: string
  route: string
  tags: string[]
  metadata: Record<string, unknown>
  status: DomainStatus
  retentionDays: number | null
  /** The days that cleared alarms are kept; null: the setting of the platform applies. */
  alarmRetentionDays: number | null
  createdBy: string | null
  createdAt: string
  updatedBy: string | null
  updatedAt: string | null
}

/** A role of a user in a domain. */
export type AssignedRole = { id: string; name: string; actions: string[] }
