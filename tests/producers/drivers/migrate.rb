# Applies the migration of docs/schema.md, which lies beside as outbox.rb.
require "active_record"
require_relative "outbox"

ActiveRecord::Base.establish_connection(adapter: "postgresql", min_messages: "error")
ActiveRecord::Migration.verbose = false
Outbox.migrate(:up)
puts 1
