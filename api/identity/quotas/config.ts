/** The settings `SKEIN_QUOTA_<NAME>` and `SKEIN_QUOTA_USER_<NAME>`: quotas of all domains and users without an own value. */
import { integer, optionalInteger } from '#core/config/index.ts'
import type { Setting } from '#core/config/index.ts'
import { DOMAIN_QUOTAS, USER_QUOTAS } from './names.ts'
import type { DomainQuota, QuotaRule, QuotaValues, UserQuota } from './names.ts'

type Prefixed<P extends string, N extends string> = `${P}${N}`

function settingsOf<P extends string, N extends string>(
  prefix: P,
  variablePrefix: string,
  rules: Readonly<Record<N, QuotaRule>>,
): Record<Prefixed<P, N>, Setting<number | undefined>> {
  return Object.fromEntries(
    Object.entries<QuotaRule>(rules).map(([name, { description, min, max, standard }]) => {
      const variable = `${variablePrefix}${name.toUpperCase()}`
      const meaning = `Default quota: ${description.charAt(0).toLowerCase()}${description.slice(1)}`
      const setting =
        standard === undefined
          ? optionalInteger(variable, { min, max }, meaning)
          : integer(variable, standard, { min, max }, meaning)
      return [`${prefix}${name}`, setting]
    }),
  ) as Record<Prefixed<P, N>, Setting<number | undefined>>
}

export const QUOTA_SETTINGS = {
  ...settingsOf('domainQuota.', 'SKEIN_QUOTA_', DOMAIN_QUOTAS),
  ...settingsOf('userQuota.', 'SKEIN_QUOTA_USER_', USER_QUOTAS),
}

export type QuotaConfig = { readonly [K in keyof typeof QUOTA_SETTINGS]?: number | undefined }

export type QuotaDefaults = { readonly domain: QuotaValues<DomainQuota>; readonly user: QuotaValues<UserQuota> }

export function defaultsOf(config: QuotaConfig): QuotaDefaults {
  const read = (prefix: string, rules: Readonly<Record<string, QuotaRule>>) =>
    Object.fromEntries(
      Object.entries(rules).flatMap(([name, { standard }]) => {
        const value = config[`${prefix}${name}` as keyof QuotaConfig] ?? standard
        return value === undefined ? [] : [[name, value]]
      }),
    )
  return { domain: read('domainQuota.', DOMAIN_QUOTAS), user: read('userQuota.', USER_QUOTAS) }
}
