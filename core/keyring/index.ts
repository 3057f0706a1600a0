export { createKeyring } from './keyring.ts'
export type { Keyring } from './keyring.ts'
export { loadMasterKey, requireSameKey } from './master-key.ts'
