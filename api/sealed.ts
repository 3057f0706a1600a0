/** Every column that is sealed with the secret key of the installation. The rotation of the key re-seals them. */
import type { SealedColumn } from '#core/keyring/index.ts'

export const SEALED_COLUMNS: readonly SealedColumn[] = [
  {
    table: 'sealed_secrets',
    column: 'sealed',
    key: 'name',
    keyType: 'text',
    context: 'name',
    purposes: ['certificate authority', 'worker token', 'grpc certificate', 'worker authority'],
  },
  {
    table: 'signing_keys',
    column: 'sealed_private_key',
    key: 'kid',
    keyType: 'text',
    context: 'kid',
    purposes: ['signing key'],
  },
  {
    table: 'clients',
    column: 'secret_sealed',
    key: 'key',
    keyType: 'bigint',
    context: `domain_key || '/' || id`,
    purposes: ['client secret'],
    mac: 'secret_mac',
  },
  {
    table: 'bootstrap_configs',
    column: 'external_key_sealed',
    key: 'client_key',
    keyType: 'bigint',
    context: `domain_key || '/' || client_key`,
    purposes: ['bootstrap external key'],
    mac: 'external_key_mac',
  },
  {
    table: 'bootstrap_configs',
    column: 'client_private_key_sealed',
    key: 'client_key',
    keyType: 'bigint',
    context: `domain_key || '/' || client_key`,
    purposes: ['bootstrap private key'],
  },
  {
    table: 'bootstrap_configs',
    column: 'render_context_sealed',
    key: 'client_key',
    keyType: 'bigint',
    context: `domain_key || '/' || client_key`,
    purposes: ['bootstrap render context'],
  },
  {
    table: 'tasks',
    column: 'secrets',
    key: 'key',
    keyType: 'bigint',
    context: 'id',
    purposes: ['task secrets'],
  },
]
