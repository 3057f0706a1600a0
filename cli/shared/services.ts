/** The services of the platform that have an address. */

/** Keys of addresses in the configuration file and in contexts, by service. */
export const ADDRESS_KEYS = {
  users: ['users_url'],
  clients: ['clients_url', 'things_url'],
  channels: ['channels_url', 'clients_url', 'things_url'],
  groups: ['groups_url', 'clients_url', 'things_url'],
  domains: ['domains_url'],
  invitations: ['invitations_url'],
  http: ['http_adapter_url'],
  reader: ['reader_url'],
  journal: ['journal_url'],
  bootstrap: ['bootstrap_url'],
  certs: ['certs_url'],
  provision: ['provision_url'],
  auth: ['auth_url'],
  host: ['host_url'],
  manager: ['manager_url'],
} as const satisfies Readonly<Record<string, readonly string[]>>

export type ServiceName = keyof typeof ADDRESS_KEYS

export const SERVICES = Object.keys(ADDRESS_KEYS) as ServiceName[]
