export { ADMIN_ROLE_NAME, adminRoleId, grantAdmin, removeRolesOf } from './built-in.ts'
