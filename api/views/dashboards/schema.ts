/** API schemas of dashboards and preferences. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { Id, Timestamp } from '#api/identity/index.ts'
import { recordOf } from '#http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { formatTime } from '#core/time.ts'
import type { DashboardRecord, PreferencesRecord } from './repository.ts'

/** Dashboards of one user in one domain. */
export const MAX_DASHBOARDS = 100
/** Size of the content of a dashboard, and of the preferences of a user in a domain, as JSON. */
export const MAX_CONTENT_BYTES = 256 * 1024
export const MAX_PREFERENCES_BYTES = 64 * 1024
const MAX_NAME_CHARS = 254

const Content = recordOf(Type.Unknown(), {
  description: `JSON object of the program that shows it, at most ${MAX_CONTENT_BYTES / 1024} KiB. The server does not read it`,
})
const name = Type.String({ minLength: 1, maxLength: MAX_NAME_CHARS })
const isShared = Type.Boolean({ description: 'True: members of the domain may view it' })

export const NewDashboard = Type.Object(
  { name, shared: Type.Optional(isShared), content: Type.Optional(Content) },
  { $id: 'DashboardCreate' },
)
export type NewDashboard = Static<typeof NewDashboard>

export const DashboardUpdate = Type.Object(
  { name: Type.Optional(name), shared: Type.Optional(isShared), content: Type.Optional(Content) },
  { $id: 'DashboardUpdate', minProperties: 1, description: 'Absent fields are unchanged' },
)
export type DashboardUpdate = Static<typeof DashboardUpdate>

const listed = {
  id: Id,
  name: Type.String(),
  shared: isShared,
  owner_id: Type.String({ description: 'The user who created it' }),
  own: Type.Boolean({ description: 'True: the caller created it, and may change it' }),
  created_at: Timestamp,
  updated_at: Timestamp,
}

export const ListedDashboard = Type.Object(listed, { $id: 'ListedDashboard' })
export const Dashboard = Type.Object({ ...listed, content: Content }, { $id: 'Dashboard' })
export const DashboardPage = Type.Object(
  { ...pageFields, dashboards: Type.Array(ListedDashboard) },
  { $id: 'DashboardPage' },
)
export const DashboardQuery = Type.Object(pageQuery())
export type DashboardQuery = Static<typeof DashboardQuery>

export const Preferences = Type.Object(
  {
    preferences: recordOf(Type.Unknown(), {
      description: `JSON object of the program that uses it, at most ${MAX_PREFERENCES_BYTES / 1024} KiB. The server does not read it`,
    }),
    updated_at: Timestamp,
  },
  { $id: 'Preferences' },
)
export const NewPreferences = Type.Object(
  { preferences: Type.Index(Preferences, ['preferences']) },
  { $id: 'PreferencesReplace' },
)

const NEVER = '0001-01-01T00:00:00Z'

export function presentListed(dashboard: DashboardRecord, callerKey: number): Static<typeof ListedDashboard> {
  return {
    id: dashboard.id,
    name: dashboard.name,
    shared: dashboard.isShared,
    owner_id: dashboard.ownerId,
    own: dashboard.ownerKey === callerKey,
    created_at: formatTime(dashboard.createdAt),
    updated_at: formatTime(dashboard.updatedAt),
  }
}

export function presentDashboard(
  dashboard: DashboardRecord & { content: Record<string, unknown> },
  callerKey: number,
): Static<typeof Dashboard> {
  return { ...presentListed(dashboard, callerKey), content: dashboard.content }
}

export function presentPreferences(found: PreferencesRecord | undefined): Static<typeof Preferences> {
  return {
    preferences: found?.preferences ?? {},
    updated_at: found === undefined ? NEVER : formatTime(found.updatedAt),
  }
}
