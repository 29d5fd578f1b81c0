-- The role of one site's storage engine ([engine] kind = "postgresql"), and nothing more.
-- As a superuser, in the site's own database (ENCODING 'UTF8'), which nobody else uses:
--   psql -d DATABASE -v role=twinlog_a -v database=DATABASE -f engine.sql
--   psql -d DATABASE -c '\password twinlog_a'
-- The role makes its tables and owns them; rows go in through temporary tables.
CREATE ROLE :"role" LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS NOINHERIT CONNECTION LIMIT 20;
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
GRANT CONNECT, TEMPORARY ON DATABASE :"database" TO :"role";
REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO :"role";
