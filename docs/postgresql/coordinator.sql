-- The role of the coordinator ([coordinator] url), which both sites use, and nothing more.
-- As a superuser, in the coordinator's database, on a server that neither site takes down with it:
--   psql -d DATABASE -v role=twinlog_register -v database=DATABASE -f coordinator.sql
--   psql -d DATABASE -c '\password twinlog_register'
-- The schema is made here, so that the role needs no CREATE on the database; it makes two tables in it, and owns them.
CREATE ROLE :"role" LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS NOINHERIT CONNECTION LIMIT 20;
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"database" TO :"role";
REVOKE ALL ON SCHEMA public FROM PUBLIC;
CREATE SCHEMA twinlog_coordinator;
GRANT USAGE, CREATE ON SCHEMA twinlog_coordinator TO :"role";
