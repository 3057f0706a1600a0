export { ADMIN_ROLE_NAME, adminRoleId } from '../access/index.ts'
export { grantAdmin, removeRolesOf } from './built-in.ts'
