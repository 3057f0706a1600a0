export { createKeyring } from './keyring.ts'
export type { Keyring } from './keyring.ts'
export {
  SECRET_KEY_FILE,
  findMasterKey,
  storeMasterKey,
  loadMasterKey,
  parsePreviousKey,
  readMasterKey,
  requireSameKey,
} from './master-key.ts'
export { ensureSecret } from './sealed-secret.ts'
export { rotateSecretKey } from './rotate.ts'
export type { SealedColumn } from './rotate.ts'
